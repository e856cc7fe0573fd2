// SPDX-License-Identifier: MIT
/// \file
/// Copies to the host and back, and parameters that are assigned from host memory, with device memory that the host cannot access.
#include <halftone/memory/store.hpp>
#include <halftone/policy.hpp>

#include <emulator/device.hpp>

#include "memory/assign_checks.hpp"
#include "tensor/host_tensor_checks.hpp"

namespace emulator_host_tensor_tests {

TEST_CASE("to_host and to_device on the emulated machine") {
    halftone::emulator::device device;
    host_tensor_checks::round_trips(device);
}

TEST_CASE("parameters on the emulated machine take values from the host") {
    halftone::emulator::device device;
    assign_checks::masters_and_copies(device);
}

}  // namespace emulator_host_tensor_tests
