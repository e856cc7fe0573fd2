// SPDX-License-Identifier: MIT
/// \file
/// The CPU's instruction sets for tests of optimizers' steps.
#pragma once

#include <halftone/kernel/optimizer_step/cpu.hpp>

#include "support/each_set.hpp"

namespace step_checks {

/// Calls check(device), a CPU with two threads, for each instruction set of this machine.
template <class Check>
void on_each_set(const Check& check) {
    support::for_each_set([&](halftone::isa set) {
        halftone::cpu device{{.threads = 2, .instruction_set = set}};
        check(device);
    });
}

}  // namespace step_checks
