// SPDX-License-Identifier: MIT
/// \file
/// Operations on tensors of which an extent is 0, on the CPU; empty_checks.hpp has the tests.
#include "autodiff/empty_checks.hpp"
#include "support/each_set.hpp"

namespace autodiff_empty_tests {

namespace ht = halftone;

TEST_CASE("tensors with an extent of 0: what PyTorch gives, forward and backward") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        empty_checks::all(device);
    });
}

}  // namespace autodiff_empty_tests
