// SPDX-License-Identifier: MIT
/// \file
/// Runs a test on every instruction set, or on each that has a body of its own, that this processor can execute;
/// HALFTONE_ISA limits them, as it does for programs. Where HALFTONE_TEST_ISA_ONCE is set, CTest runs the same program
/// without a set, too, which has tested them all: here are none left.
///
///     support::for_each_isa([&](ht::isa set) { ht::cpu device{{.instruction_set = set}}; ... });
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

#include <halftone/exec/cpu/isa.hpp>

#include "support/left_out.hpp"

namespace support {

/// Widths around one vector and around four vectors of every set, and larger ones.
inline constexpr std::int64_t widths[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 67, 129, 257, 768, 1021};

/// Whether this run of the program tests a set.
inline bool is_tested(halftone::isa set) {
    if (std::getenv("HALFTONE_TEST_ISA_ONCE") != nullptr) return note_left_out(), false;
    const char* cap = std::getenv("HALFTONE_ISA");
    if (cap != nullptr && *cap != '\0' && halftone::parse_isa(cap) < set) return false;
    return halftone::supports(set);
}

template <class Test, std::size_t Count>
void for_each_of(const halftone::isa (&sets)[Count], const Test& test) {
    const bool is_left = std::getenv("HALFTONE_TEST_ISA_ONCE") == nullptr;
    for (const halftone::isa set : sets) {
        const std::string instruction_set = halftone::name(set);
        CAPTURE(instruction_set);
        if (is_tested(set)) {
            test(set);
        } else if (is_left) {
            MESSAGE("not tested here: ", instruction_set);
        }
    }
}

template <class Test>
void for_each_isa(const Test& test) {
    for_each_of(halftone::every_isa, test);
}

/// For kernels on f32 vectors: sets with bfloat16 and tile instructions have no bodies of their own for these.
template <class Test>
void for_each_set(const Test& test) {
    using halftone::isa;
    for_each_of({isa::portable, isa::avx2, isa::avx512}, test);
}

}  // namespace support
