// SPDX-License-Identifier: MIT
/// \file
/// Parameters in a user's own type that float does not hold: their steps and conversions are in double.
#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/convert/cpu.hpp>
#include <halftone/kernel/optimizer_step/cpu.hpp>

#include "kernel/optimizer_step/wide_checks.hpp"

namespace optim_wide_parameters_tests {

TEST_CASE("parameters that float does not hold: a step's result is that of its definition in double, rounded once") {
    halftone::cpu device{{.threads = 2}};
    wide_checks::steps(device);
}
TEST_CASE("parameters that float does not hold: a step by a rule of a program's own, whose scalars are floats") {
    halftone::cpu device{{.threads = 1}};
    wide_checks::own_rule(device);
}
TEST_CASE("numbers that float does not hold are converted in double, and rounded once") {
    halftone::cpu device{{.threads = 2}};
    wide_checks::conversions(device);
}

}  // namespace optim_wide_parameters_tests
