// SPDX-License-Identifier: MIT
/// \file
/// Scratch memory of all operations on devices that run GPU kernels: told before, and no byte more.
#include <memory>

#include <doctest/doctest.h>

#include <halftone/kernel/device.hpp>

#include "emulator/device.hpp"
#include "kernel/workspace/operations.hpp"

namespace {

using namespace workspace_checks;
namespace emulator = ht::emulator;

TEST_CASE("workspace_bytes on a GPU: what every operation takes, of arguments that nobody touches") {
    const auto make = [](std::span<std::byte> scratch) {
        const emulator::options values{.check = emulator::checking::values_only};
        return std::make_unique<emulator::device>(values, ht::simt::architecture_of(80), scratch);
    };
    is_told<emulator::device>({.rows = 1, .width = 1, .classes = 1}, make);
    is_told<emulator::device>({.rows = 37, .width = 24, .classes = 50}, make);
    is_told<emulator::device>({.rows = 70, .width = 33, .classes = 129, .apart = 1}, make);
}

}  // namespace
