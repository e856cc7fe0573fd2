// SPDX-License-Identifier: MIT
/// \file
/// Attention on floats whose products compute in tfloat32, on every instruction set: operands, including the weights of the
/// softmax, are rounded when they are packed.
#include <string>

#include <doctest/doctest.h>

#include <halftone/kernel/attention/cpu.hpp>

#include "kernel/attention/checks.hpp"
#include "support/each_set.hpp"

namespace kernel_attention_tf32_tests {

namespace ht = halftone;
using support::attention_sizes, support::layout;

TEST_CASE("attention and its gradients are within bounds: float, products of tfloat32") {
    for (const attention_sizes& sizes : {attention_sizes{1, 63, 63, 3, 3, 24, ht::attention_mask::causal},
                                         attention_sizes{1, 7, 301, 2, 1, 24, ht::attention_mask::full}}) {
        support::check_problem<ht::tfloat32, float>(
            sizes, layout::contiguous, support::bounds::telling, 1,
            [](const support::problem<float>& p, const auto& check) {
                support::for_each_set([&](ht::isa set) {
                    ht::cpu device{{.threads = 2, .instruction_set = set}};
                    check(support::outcome_of<ht::tfloat32>(p, device));
                });
            });
    }
}

TEST_CASE("attention reads floats rounded to tfloat32, as other products do") {
    support::for_each_set([&](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        support::check_operands_are_rounded({1, 20, 37, 2, 1, 24, ht::attention_mask::causal}, layout::contiguous,
                                            device);
    });
}

}  // namespace kernel_attention_tf32_tests
