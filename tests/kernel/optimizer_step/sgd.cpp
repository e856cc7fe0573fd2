// SPDX-License-Identifier: MIT
/// \file
/// A step of stochastic gradient descent on every instruction set; sgd_checks.hpp has the tests.
#include <halftone/kernel/optimizer_step/cpu.hpp>

#include "kernel/optimizer_step/each_set.hpp"
#include "kernel/optimizer_step/sgd_checks.hpp"

namespace kernel_optimizer_step_sgd_tests {

using namespace sgd_checks;
using step_checks::on_each_set;

TEST_CASE_TEMPLATE("sgd: equals its definition", G, float, ht::bfloat16) {
    on_each_set([](ht::cpu& device) { equals_definition<G>(device); });
}

TEST_CASE_TEMPLATE("sgd: a parameter is rounded by the random bits of its index", Param, ht::bfloat16, ht::float16) {
    on_each_set([](ht::cpu& device) { rounds_by_place<Param>(device); });
}

TEST_CASE("sgd: parameters without a master move on average") {
    on_each_set([](ht::cpu& device) { moves_on_average(device); });
}

TEST_CASE("sgd: a skipped step changes nothing; arguments that do not fit together are refused") {
    ht::cpu device{{.threads = 1}};
    skips_and_refuses(device);
}

}  // namespace kernel_optimizer_step_sgd_tests
