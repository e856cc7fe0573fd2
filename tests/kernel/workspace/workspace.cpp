// SPDX-License-Identifier: MIT
/// \file
/// Scratch memory of all operations on the CPU: told before, no byte more, and nothing is touched for it.
#include <memory>

#include <doctest/doctest.h>

#include <halftone/kernel.hpp>

#include "kernel/workspace/operations.hpp"

namespace {

using namespace workspace_checks;

TEST_CASE("workspace_bytes: what every operation takes, of arguments that nobody touches") {
    for (const int threads : {1, 3}) {
        CAPTURE(threads);
        const auto make = [&](std::span<std::byte> scratch) {
            return std::make_unique<ht::cpu>(ht::cpu_options{.threads = threads, .workspace = scratch});
        };
        is_told<ht::cpu>({.rows = 1, .width = 1, .classes = 1}, make);
        is_told<ht::cpu>({.rows = 37, .width = 24, .classes = 50}, make);
        is_told<ht::cpu>({.rows = 300, .width = 129, .classes = 301, .apart = 1}, make);
    }
}

TEST_CASE("workspace_bytes: nothing for nothing, the most of several, and errors as they are") {
    ht::cpu device{{.threads = 2}};
    CHECK(ht::workspace_bytes(device, [](auto&) {}) == 0);
    arguments m(access::open);
    const auto x = m.take<float>(extent{40}, extent{40}), y = m.take<float>(extent{40}, extent{40});
    const auto product = [&](auto& d) { ht::matmul<ht::full_fp32>(d, x, x, y); };
    // A number that is asked for between runs changes nothing; two operations, one after the other, share.
    const std::size_t bytes = ht::workspace_bytes(device, product);
    product(device);
    CHECK(device.scratch().peak() == bytes);
    CHECK(ht::workspace_bytes(device, [&](auto& d) { product(d), product(d); }) == bytes);
    CHECK_THROWS_AS(
        ht::workspace_bytes(device,
                            [&](auto& d) { ht::matmul<ht::full_fp32>(d, x, m.take<float>(extent{3}, extent{40}), y); }),
        ht::shape_error);
}

}  // namespace
