// SPDX-License-Identifier: MIT
/// \file
/// Attention with scores of 2^20: flash kernels on every instruction set.
#include <doctest/doctest.h>

#include <halftone/kernel/attention/cpu.hpp>

#include "kernel/attention/shifted.hpp"
#include "support/each_set.hpp"

namespace kernel_attention_shifted_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::float16;
using support::attention_sizes;

template <class Compute, class T>
void check() {
    for (const ht::isa set : ht::every_isa) {
        CAPTURE(std::string(ht::name(set)));
        if (!support::is_tested(set)) continue;
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        const auto run = [&](const support::problem<T>& p) { return support::outcome_of<Compute>(p, device); };
        for (const float scale : {1.0f, 0.3f}) {
            for (const attention_sizes& sizes : {attention_sizes{1, 40, 70, 2, 1, 16, ht::attention_mask::causal},
                                                 attention_sizes{1, 9, 300, 1, 1, 24, ht::attention_mask::full}})
                support::check_shifted<Compute, T>(sizes, scale, ht::attention_strategy::flash, run);
        }
    }
}

TEST_CASE("flash attention: scores of a million are as exact as small ones") {
    SUBCASE("float") { check<float, float>(); }
    SUBCASE("bfloat16") { check<bfloat16, bfloat16>(); }
    SUBCASE("float16") { check<float16, float16>(); }
}

}  // namespace kernel_attention_shifted_tests
