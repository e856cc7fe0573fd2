// SPDX-License-Identifier: MIT
/// \file
/// Models in double on the CPU.
#include <halftone/amp.hpp>

#include "nn/double.hpp"

namespace nn_double_tests {

TEST_CASE("full_fp64: a GPT's gradients agree with finite differences") {
    halftone::cpu device{{.threads = 1}};
    double_nn::gpt_gradients(device, 3);
}

TEST_CASE("full_fp64: norms and linear layers; a wrong gradient is reported by its path") {
    halftone::cpu device{{.threads = 2}};
    double_nn::net_gradients(device);
}

}  // namespace nn_double_tests
