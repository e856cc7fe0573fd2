// SPDX-License-Identifier: MIT
/// \file
/// Scratch memory of all operations on devices that run GPU kernels: its size is known in advance, to the byte.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/device.hpp>

#include "emulator/device.hpp"
#include "contexts/operations.hpp"

namespace emulator_kernel_workspace_tests {

using namespace operation_checks;
namespace emulator = ht::emulator;

TEST_CASE("workspace_bytes on a GPU: the scratch memory of every operation, for arguments that are not accessed") {
    const auto make = [](std::span<std::byte> scratch) {
        const emulator::options values{.check = emulator::checking::values_only};
        return std::make_unique<emulator::device>(values, ht::simt::architecture_of(80), scratch);
    };
    is_told<emulator::device>({.rows = 1, .width = 1, .classes = 1}, make);
    is_told<emulator::device>({.rows = 37, .width = 24, .classes = 50}, make);
    is_told<emulator::device>({.rows = 70, .width = 33, .classes = 129, .apart = 1}, make);
    is_told<emulator::device>({.rows = 5, .width = 2080, .classes = 9}, make);
}

/// An engine that leases workspace memory and multiplies nothing.
struct greedy_engine : ht::matmul_engine {
    const char* name() const override { return "greedy"; }
    bool can(const ht::product_description&) override { return true; }
    bool prefers(const ht::product_description&) const override { return true; }
    std::size_t workspace_bytes(const ht::product_description& p) override {
        return static_cast<std::size_t>(p.m) * 64;
    }
    void multiply(const ht::product_description& p, ht::workspace& scratch) override {
        const ht::workspace::lease space(scratch, workspace_bytes(p));
    }
};
struct engine_device : emulator::device {
    ht::detail::engine_slot slot{ht::engine_use::always};
    engine_device() { slot.hold(std::make_unique<greedy_engine>()); }
    ht::matmul_engine* engine_for(const ht::product_description& p) const { return slot.engine_for(p); }
};

TEST_CASE("workspace_bytes on a GPU: an engine's scratch memory counts, and workspace_bytes multiplies nothing") {
    engine_device device;
    const extent n = 40;
    const auto with_products = [&](arguments& m, auto call) {
        const auto a = m.take<bfloat16>(n, n), b = m.take<bfloat16>(n, n), c = m.take<bfloat16>(n, n);
        const auto bias = m.take<float>(n);
        return call([=](auto& d) { ht::matmul<ht::amp_bf16>(d, a, b, c); },
                    [=](auto& d) { ht::matmul<ht::amp_bf16>(d, a, b, c, ht::bias_gelu{bias}); });
    };
    arguments closed(access::closed), open(access::open);
    with_products(closed, [&](auto plain, auto finished) {
        CHECK(ht::workspace_bytes(device, plain) == n * 64);
        CHECK(ht::workspace_bytes(device, finished) == n * 64 + n * n * sizeof(float));  // plus the engine's sums
    });
    CHECK(device.scratch().peak() == 0);
    with_products(open, [&](auto plain, auto finished) {
        plain(device);
        CHECK(device.scratch().peak() == n * 64);
        finished(device);
        CHECK(device.scratch().peak() == n * 64 + n * n * sizeof(float));
    });
}

TEST_CASE("emulated devices in several threads at once have the bits of a single one, in any schedule") {
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

}  // namespace emulator_kernel_workspace_tests
