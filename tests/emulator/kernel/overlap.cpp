// SPDX-License-Identifier: MIT
/// \file
/// What kernels on a GPU write to shows each element once; kernel/overlap_checks.hpp has the tests.
#include <emulator/device.hpp>

#include <halftone/kernel/device.hpp>

#include "kernel/overlap_checks.hpp"

namespace {

TEST_CASE("outputs that overlap themselves are refused on a GPU; inputs may") {
    halftone::emulator::device device{{.seed = 3}};
    overlap_checks::all(device);
}

}  // namespace
