// SPDX-License-Identifier: MIT
/// \file
/// A step of AdamW on every instruction set; checks.hpp has what it has to do.
#include <halftone/kernel/adamw/cpu.hpp>

#include "kernel/adamw/checks.hpp"
#include "support/each_set.hpp"

namespace {

using namespace adamw_checks;

/// On each set: check(device).
template <class Check>
void on_each_set(const Check& check) {
    support::for_each_set([&](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        check(device);
    });
}

TEST_CASE_TEMPLATE("adamw: equals its definition", S, slabs<float, ht::bfloat16, float, float>,
                   slabs<float, ht::float16, float, float>, slabs<float, float, ht::bfloat16, float>,
                   slabs<float, ht::bfloat16, float, ht::bfloat16>) {
    on_each_set([](ht::cpu& device) { equals_definition<S>(device); });
}

TEST_CASE("adamw: parameters without a master are rounded to one of their two neighbours, by numbers of their own") {
    on_each_set([](ht::cpu& device) { rounds_to_neighbours(device); });
}

TEST_CASE("adamw: the random numbers of an element are those of its index, however the run is cut") {
    on_each_set([](ht::cpu& device) { cuts_alike(device); });
}

TEST_CASE("adamw: a moment in bf16 is rounded by the random bits of its place and of no other") {
    on_each_set([](ht::cpu& device) { rounds_by_place(device); });
}

TEST_CASE("adamw: a second moment in bf16 shrinks on average, where rounding to nearest would keep it") {
    on_each_set([](ht::cpu& device) { moment_shrinks(device); });
}

TEST_CASE("adamw: a skipped step changes nothing, and a missing copy is no matter") {
    on_each_set([](ht::cpu& device) { skips(device); });
}

TEST_CASE("adamw: arguments that do not fit together are refused") {
    ht::cpu device{{.threads = 1}};
    refuses(device);
}

}  // namespace
