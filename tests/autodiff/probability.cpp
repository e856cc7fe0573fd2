// SPDX-License-Identifier: MIT
/// \file
/// Binary cross-entropy on the CPU, in each instruction set; probability_checks.hpp has the tests.
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>

#include "autodiff/probability_checks.hpp"
#include "support/each_set.hpp"

namespace autodiff_probability_tests {

TEST_CASE("binary cross-entropy: the loss, its gradient and the derivative of that, at 0 and 1 too") {
    support::for_each_set([](halftone::isa set) {
        halftone::cpu device{{.threads = 1, .instruction_set = set}};
        probability_checks::all(device);
    });
}

}  // namespace autodiff_probability_tests
