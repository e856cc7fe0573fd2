// SPDX-License-Identifier: MIT
/// \file
/// The average of parameters in a step, on every instruction set; average_checks.hpp has the tests.
#include <halftone/kernel/optimizer_step/cpu.hpp>

#include "kernel/optimizer_step/average_checks.hpp"
#include "support/each_set.hpp"

namespace kernel_optimizer_step_average_tests {

using namespace average_checks;

TEST_CASE_TEMPLATE("average in a step: equals its definition", S, slabs<float, ht::bfloat16, float, float>,
                   slabs<ht::bfloat16, ht::float16, float, float>) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        keeps_average<S>(device);
    });
}

TEST_CASE("average in a step: the assigning rule, and saved parameters") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        assigns(device);
    });
}

}  // namespace kernel_optimizer_step_average_tests
