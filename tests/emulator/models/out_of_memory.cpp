// SPDX-License-Identifier: MIT
/// \file
/// A training run on a GPU that runs out of memory, anywhere.
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "train/out_of_memory_checks.hpp"

namespace emulator_models_out_of_memory_tests {

namespace ht = halftone;

void expect_errors(long stride) {
    ht::emulator::device gpu{{.check = ht::emulator::checking::values_only}};
    out_of_memory_checks::expect_errors_everywhere<ht::amp_fp16, ht::plain_tape>(gpu, stride);
}

// With the policy of the other models that `ctest -C More` runs, whose kernels are compiled there anyway.
TEST_CASE("out of memory on a device at some requests: one error, nothing lost, and the next run is as a fresh one") {
    expect_errors(7);
}
TEST_CASE("out of memory on a device at each request in turn, to the end of the run" * doctest::skip()) { expect_errors(1); }

}  // namespace emulator_models_out_of_memory_tests
