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
    const detail::processor here = detail::inspect_processor();
    const char* text = std::getenv("HALFTONE_ISA");
    if (text == nullptr || *text == '\0') return here.preferred;
    const isa set = parse_isa(text);
    if (set > here.best) fail<argument_error>("isa: HALFTONE_ISA is ", text, ", which this processor lacks");
    return set;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
