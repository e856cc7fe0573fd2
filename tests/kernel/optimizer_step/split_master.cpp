// SPDX-License-Identifier: MIT
/// \file
/// Steps over split masters on every instruction set.
#include <halftone/kernel/optimizer_step/cpu.hpp>

#include "kernel/optimizer_step/split_checks.hpp"
#include "support/each_set.hpp"

namespace kernel_optimizer_step_split_master_tests {

namespace ht = halftone;
using split_checks::rule;

TEST_CASE("split masters: a step gives the bits of whole masters, moments in fp32 and in bf16") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        split_checks::equals_whole<rule::adamw, float>(device);
        split_checks::equals_whole<rule::lion, ht::bfloat16>(device);
        split_checks::equals_whole<rule::sgd, ht::bfloat16>(device);
        split_checks::rounds_away(device);
    });
}

TEST_CASE("split masters: one without its upper half is refused") {
    ht::cpu device{{.threads = 1}};
    split_checks::refuses(device);
}

}  // namespace kernel_optimizer_step_split_master_tests
