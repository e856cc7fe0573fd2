// SPDX-License-Identifier: MIT
/// \file
/// Operations and models in double, and check_gradients on the emulated GPU.
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "autodiff/double_checks.hpp"
#include "nn/double.hpp"

namespace emulator_models_double_tests {

using machine = halftone::emulator::device;

TEST_CASE("fp64 on a GPU: values and gradients within bounds of doubles") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        machine device{{.seed = seed}};
        double_checks::products(device);
        double_checks::softmaxes(device);
        double_checks::mixed(device);
    }
    machine device{{.seed = 20}};
    double_checks::maps(device);
    double_checks::constants(device);
    double_checks::sums(device);
}

TEST_CASE("fp64 on a GPU: gradients of all operations against differences") {
    machine device{{.seed = 3}};
    double_checks::gradients(device);
    double_checks::own_operations(device);
}

TEST_CASE("full_fp64 on a GPU: gradients of models against differences") {
    machine device{{.seed = 4}};
    double_nn::net_gradients(device);
    double_nn::gpt_gradients(device, 97);
}

}  // namespace emulator_models_double_tests
