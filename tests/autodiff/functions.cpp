// SPDX-License-Identifier: MIT
/// \file
/// Functions of one variable on the CPU: values and derivatives are PyTorch's.
#include <doctest/doctest.h>

#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/sum/cpu.hpp>

#include "autodiff/function_checks.hpp"

namespace autodiff_functions_tests {

TEST_CASE("functions of one variable: values and derivatives are PyTorch's") {
    halftone::cpu device{{.threads = 1}};
    function_checks::check_functions(device);
}

}  // namespace autodiff_functions_tests
