// SPDX-License-Identifier: MIT
/// \file
/// Free operations on doubles, and check_gradients, on the CPU.
#include <halftone/kernel.hpp>

#include "autodiff/double_checks.hpp"

namespace autodiff_double_tests {

TEST_CASE("fp64 on the CPU: values and gradients within bounds of doubles") {
    halftone::cpu device{{.threads = 2}};
    double_checks::maps(device);
    double_checks::constants(device);
    double_checks::sums(device);
    double_checks::products(device);
    double_checks::softmaxes(device);
    double_checks::mixed(device);
}

TEST_CASE("fp64 on the CPU: gradients of all operations against differences") {
    halftone::cpu device{{.threads = 1}};
    double_checks::gradients(device);
    double_checks::own_operations(device);
}

}  // namespace autodiff_double_tests
