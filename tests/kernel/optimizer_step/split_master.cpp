// SPDX-License-Identifier: MIT
/// \file
/// Steps over split masters on every instruction set.
#include <halftone/kernel/optimizer_step/cpu.hpp>

#include "kernel/optimizer_step/each_set.hpp"
#include "kernel/optimizer_step/split_checks.hpp"

namespace kernel_optimizer_step_split_master_tests {

using namespace split_checks;

TEST_CASE("split masters: a step gives the bits of whole masters, moments in fp32 and in bf16") {
    on_each_set([](ht::cpu& device) {
        equals_whole<adamw_rule, float>(device);
        equals_whole<lion_rule, ht::bfloat16>(device);
        equals_whole<sgd_rule, ht::bfloat16>(device);
        rounds_away(device);
    });
}

TEST_CASE("split masters: one without its upper half is refused") {
    ht::cpu device{{.threads = 1}};
    refuses(device);
}

}  // namespace kernel_optimizer_step_split_master_tests
