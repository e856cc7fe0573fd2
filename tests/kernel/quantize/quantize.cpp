// SPDX-License-Identifier: MIT
/// \file
/// Tensors in eight bits on the CPU, on every instruction set.
#include <halftone/kernel/quantize/cpu.hpp>

#include "kernel/quantize/checks.hpp"
#include "support/each_set.hpp"

namespace kernel_quantize_tests {

using namespace quantize_checks;

TEST_CASE("quantize: scales, numbers and amaxes are the definition's") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        equals_definition<ht::bfloat16, ht::float8_e4m3>(device);
        equals_definition<float, ht::float8_e5m2>(device);
        gathers<ht::bfloat16, ht::float8_e5m2>(device);
        keeps_what_is_not_finite<ht::float8_e4m3>(device);
        keeps_what_is_not_finite<ht::float8_e5m2>(device);
    });
}

TEST_CASE("quantize: delayed scales follow Transformer Engine's formula, and skipped windows do not change them") {
    ht::cpu device;
    follows_the_formula(device);
    refuses(device);
}

TEST_CASE("quantize: the scale for an amax, also at compile time") {
    static_assert(ht::scale_for(448, 448, plain, 7) == 1);
    static_assert(ht::scale_for(112, 448, margin, 7) == 1);
    static_assert(ht::scale_for(100, 448, powers, 7) == 4);
    static_assert(ht::scale_for(0, 448, plain, 7) == 7);
    static_assert(ht::scale_for(-0.0f, 448, plain, 7) == 7);
    static_assert(ht::scale_for(infinity, 448, plain, 7) == 7);
    static_assert(ht::scale_for(not_a_number, 448, plain, 7) == 7);
    CHECK(ht::scale_for(1e-44f, 448, powers, 7) == 0x1p127f);  // not at compile time, since the quotient exceeds float's range
}

}  // namespace kernel_quantize_tests
