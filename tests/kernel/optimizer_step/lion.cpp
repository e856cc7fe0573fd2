// SPDX-License-Identifier: MIT
/// \file
/// A step of Lion on every instruction set; lion_checks.hpp has the tests.
#include <halftone/kernel/optimizer_step/cpu.hpp>

#include "kernel/optimizer_step/lion_checks.hpp"
#include "support/each_set.hpp"

namespace {

using namespace lion_checks;

/// Calls check(device) for each instruction set.
template <class Check>
void on_each_set(const Check& check) {
    support::for_each_set([&](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        check(device);
    });
}

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

}  // namespace
