// SPDX-License-Identifier: MIT
/// \file
/// Scratch memory of all operations on devices that run GPU kernels: told before, and no byte more.
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

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

TEST_CASE("emulated devices in several threads at once leave the bits of one alone, whatever their schedules") {
    const sizes shape{.rows = 37, .width = 24, .classes = 50};
    emulator::device one{{.seed = 1}};
    const std::vector<std::uint64_t> alone = bits_of_all(one, shape);
    std::vector<std::uint64_t> together[2];
    std::vector<std::thread> users;
    for (std::uint64_t i = 0; i < 2; ++i) {
        users.emplace_back([&, i] {
            emulator::device device{{.seed = 2 + i}};
            together[i] = bits_of_all(device, shape);
        });
    }
    for (std::thread& user : users) user.join();
    CHECK(together[0] == alone);
    CHECK(together[1] == alone);
}

}  // namespace
