// SPDX-License-Identifier: MIT
/// \file
/// Runs a test on every instruction set that has a body of its own and that this processor can execute; HALFTONE_ISA
/// caps them, as it does for programs.
///
///     support::for_each_set([&](ht::isa set) { ht::cpu device{{.instruction_set = set}}; ... });
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

#include <halftone/exec/cpu/isa.hpp>

namespace support {

/// Around the vectors of every set and around four of them, and larger.
inline constexpr std::int64_t widths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 67, 129, 257, 768, 1021};

inline bool is_tested(halftone::isa set) {
    const char* cap = std::getenv("HALFTONE_ISA");
    if (cap != nullptr && *cap != '\0' && halftone::parse_isa(cap) < set) return false;
    return halftone::supports(set);
}

/// For kernels on f32 vectors: bfloat16 and tile instructions add no body to these.
template <class Test>
void for_each_set(const Test& test) {
    for (const halftone::isa set : {halftone::isa::portable, halftone::isa::avx2, halftone::isa::avx512}) {
        const std::string instruction_set = halftone::name(set);
        CAPTURE(instruction_set);
        if (is_tested(set)) {
            test(set);
        } else {
            MESSAGE("not tested here: ", instruction_set);
        }
    }
}

}  // namespace support
