// SPDX-License-Identifier: MIT
/// \file
/// Runs a test on a CPU device with one thread for every instruction set that can be tested here (each_set.hpp),
/// without messages about the others.
///
///     support::for_each_cpu([&](ht::cpu& device) { ... });
#pragma once

#include <string>

#include <halftone/exec/cpu/cpu.hpp>

#include "support/each_set.hpp"

namespace support {

template <class Test>
void for_each_cpu(const Test& test) {
    for (const halftone::isa set : halftone::every_isa) {
        const std::string instruction_set = halftone::name(set);
        CAPTURE(instruction_set);
        if (!is_tested(set)) continue;
        halftone::cpu device{{.threads = 1, .instruction_set = set}};
        test(device);
    }
}

}  // namespace support
