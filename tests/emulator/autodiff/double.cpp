// SPDX-License-Identifier: MIT
/// \file
/// Free operations on doubles, and check_gradients, as a GPU runs them.
#include <halftone/kernel/column_sum/device.hpp>
#include <halftone/kernel/cross_entropy/device.hpp>
#include <halftone/kernel/dropout/device.hpp>
#include <halftone/kernel/map/device.hpp>
#include <halftone/kernel/matmul/device.hpp>
#include <halftone/kernel/softmax/device.hpp>
#include <halftone/kernel/sum/device.hpp>

#include <emulator/device.hpp>

#include "autodiff/double_checks.hpp"

namespace {

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
    double_checks::sums(device);
}

TEST_CASE("fp64 on a GPU: gradients of all operations against differences") {
    machine device{{.seed = 3}};
    double_checks::gradients(device);
    double_checks::own_operations(device);
}

}  // namespace
