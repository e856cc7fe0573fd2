// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in isa.hpp that are no templates.
#pragma once

#include <halftone/exec/cpu/isa.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Finds the set by its name.
HALFTONE_OUT_OF_LINE isa parse_isa(const char* text) {
    for (isa set : every_isa) {
        if (std::strcmp(text, name(set)) == 0) return set;
    }
    fail<argument_error>("isa: '", text,
                         "' is not an instruction set; known: portable, avx2, avx512, avx512_bf16, amx");
}

/// Reads HALFTONE_ISA.
HALFTONE_OUT_OF_LINE isa default_isa() {
    const char* text = std::getenv("HALFTONE_ISA");
    if (text != nullptr && *text != '\0') {
        const isa set = parse_isa(text);
        detail::check_isa("isa: HALFTONE_ISA is", set);
        return set;
    }
    // The highest set of this program that is not above the preferred one, or its lowest, which is then refused.
    const isa preferred = detail::inspect_processor().preferred;
    const isa* best = nullptr;
    for (const isa& set : every_isa) {
        if (!has_kernels(set)) continue;
        if (best != nullptr && set > preferred) break;
        best = &set;
    }
    if (*best > preferred) detail::check_isa("isa: HALFTONE_ONE_SET compiled", *best);
    return *best;
}

namespace detail {

HALFTONE_OUT_OF_LINE void check_isa(const char* subject, isa set) {
    // The processor first: on one of another family the program lacks the set, too, whatever the flags were.
    if (set > inspect_processor().best)
        fail<argument_error>(subject, " ", name(set), ", which this processor lacks");
    if (!has_kernels(set))
        fail<argument_error>(subject, " ", name(set), ", which this program lacks: HALFTONE_ONE_SET compiled another");
}

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
