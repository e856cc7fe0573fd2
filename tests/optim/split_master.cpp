// SPDX-License-Identifier: MIT
/// \file
/// Split masters through store, optimizers, clipping and skipped steps on the CPU.
#include "optim/split_checks.hpp"
#include "support/each_set.hpp"

namespace optim_split_master_tests {

namespace ht = halftone;
using split_training::rule;

TEST_CASE("split masters: after 1,000 steps of AdamW and of SGD the bits are those of whole masters") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        split_training::same_steps<rule::adamw>(device, 1000);
        split_training::same_steps<rule::sgd>(device, 1000);
    });
}

TEST_CASE("split masters: their memory, reading and setting them, and freezing") {
    ht::cpu device{{.threads = 1}};
    split_training::lies_in_halves(device);
}

}  // namespace optim_split_master_tests
