// SPDX-License-Identifier: MIT
/// \file
/// Reductions along axes on a tape on the emulated GPU.
#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "autodiff/axis_reduction_checks.hpp"

namespace emulator_models_axis_reduction_tests {

TEST_CASE("axis reductions on a GPU's tape: gradients, shapes, values, indices") {
    halftone::emulator::device device;
    axis_tape_checks::shapes_and_values(device);
    axis_tape_checks::deviations_beyond_squares(device);
    axis_tape_checks::narrow_results(device);
    axis_tape_checks::all_gradients(device);
}

}  // namespace emulator_models_axis_reduction_tests
