// SPDX-License-Identifier: MIT
/// \file
/// The CPU's instruction sets for tests of products.
#pragma once

#include <halftone/kernel/matmul/cpu.hpp>

#include "support/each_set.hpp"

namespace matmul_test {

namespace ht = halftone;

/// Runs test(device) on every instruction set of this machine.
template <class Test>
void on_every_set(int threads, const Test& test) {
    support::for_each_isa([&](ht::isa set) {
        ht::cpu device{{.threads = threads, .instruction_set = set}};
        test(device);
    });
}

}  // namespace matmul_test
