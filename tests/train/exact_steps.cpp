// SPDX-License-Identifier: MIT
/// \file
/// Steps with a gradient penalty, with dropout and with sparse gradients, with whole numbers: the same bits on every instruction
/// set, at any number of threads.
#include <doctest/doctest.h>

#include "support/each_set.hpp"
#include "train/exact_steps.hpp"

namespace train_exact_steps_tests {

namespace ht = halftone;

TEST_CASE(
    "steps in whole numbers: penalties, dropout and sparse gradients have the same bits on every instruction set") {
    ht::cpu reference{{.threads = 1, .instruction_set = ht::isa::portable}};
    support::for_each_isa([&](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        exact_steps::check_penalty(device, reference);
        exact_steps::check_dropout(device, reference);
        exact_steps::check_lookup(device, reference);
    });
}

}  // namespace train_exact_steps_tests
