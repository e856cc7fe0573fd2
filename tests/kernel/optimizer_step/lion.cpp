// SPDX-License-Identifier: MIT
/// \file
/// A step of Lion on every instruction set; lion_checks.hpp has the tests.
#include <halftone/kernel/optimizer_step/cpu.hpp>

#include "kernel/optimizer_step/each_set.hpp"
#include "kernel/optimizer_step/lion_checks.hpp"

namespace kernel_optimizer_step_lion_tests {

using namespace lion_checks;
using step_checks::on_each_set;

TEST_CASE_TEMPLATE("lion: equals its definition", S, slabs<float, ht::bfloat16, float, float>,
                   slabs<float, ht::float16, ht::bfloat16, ht::bfloat16>) {
    on_each_set([](ht::cpu& device) { equals_definition<S>(device); });
}

TEST_CASE("lion: parameters and moments are rounded by the random bits of their indices") {
    on_each_set([](ht::cpu& device) { rounds_by_place(device); });
}

TEST_CASE("lion: a skipped step changes nothing; arguments that do not fit together are refused") {
    ht::cpu device{{.threads = 1}};
    skips_and_refuses(device);
}

}  // namespace kernel_optimizer_step_lion_tests
