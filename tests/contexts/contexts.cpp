// SPDX-License-Identifier: MIT
/// \file
/// Guarantees of a context: the scratch memory of all operations is known in advance, to the byte, without accessing their
/// arguments; a context serves one thread at a time, and several contexts serve several threads at once. Compiled with the thread
/// sanitizer, if there is one.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel.hpp>

#include "contexts/operations.hpp"
#include "support/each_set.hpp"

namespace contexts_tests {

using namespace operation_checks;
using bits = std::vector<std::uint64_t>;

TEST_CASE("workspace_bytes: the scratch memory of every operation, for arguments that are not accessed") {
    for (const ht::isa set : ht::every_isa) {
        if (!support::is_tested(set)) continue;
        const std::string instruction_set = ht::name(set);
        CAPTURE(instruction_set);
        for (const int threads : {1, 3}) {
            CAPTURE(threads);
            const auto make = [&](std::span<std::byte> scratch) {
                return std::make_unique<ht::cpu>(
                    ht::cpu_options{.threads = threads, .instruction_set = set, .workspace = scratch});
            };
            is_told<ht::cpu>({.rows = 1, .width = 1, .classes = 1}, make);
            is_told<ht::cpu>({.rows = 37, .width = 24, .classes = 50}, make);
            if (threads == 3) is_told<ht::cpu>({.rows = 300, .width = 129, .classes = 301, .apart = 1}, make);
        }
    }
}

TEST_CASE("workspace_bytes: nothing for nothing, the most of several, and errors as they are") {
    ht::cpu device{{.threads = 2}};
    CHECK(ht::workspace_bytes(device, [](auto&) {}) == 0);
    arguments m(access::open);
    const auto x = m.take<float>(extent{40}, extent{40}), y = m.take<float>(extent{40}, extent{40});
    const auto product = [&](auto& d) { ht::matmul<ht::full_fp32>(d, x, x, y); };
    // Calling workspace_bytes between runs changes nothing; two consecutive operations share scratch memory.
    const std::size_t bytes = ht::workspace_bytes(device, product);
    product(device);
    CHECK(device.scratch().peak() == bytes);
    CHECK(ht::workspace_bytes(device, [&](auto& d) { product(d), product(d); }) == bytes);
    CHECK_THROWS_AS(
        ht::workspace_bytes(device,
                            [&](auto& d) { ht::matmul<ht::full_fp32>(d, x, m.take<float>(extent{3}, extent{40}), y); }),
        ht::shape_error);
}

TEST_CASE("contexts: all operations on several at once, each with threads of its own, leave the bits of one alone") {
    const sizes shapes[] = {{.rows = 37, .width = 24, .classes = 50},
                            {.rows = 200, .width = 33, .classes = 70, .apart = 1}};
    bits alone[2];
    for (int i = 0; i < 2; ++i) {
        ht::cpu device{{.threads = 1}};
        alone[i] = bits_of_all(device, shapes[i]);
    }
    CHECK(alone[0].size() > 25);
    CHECK(alone[0] != alone[1]);

    bits together[3];
    std::vector<std::thread> users;
    for (int i = 0; i < 3; ++i) {
        users.emplace_back([&, i] {
            ht::cpu device{{.threads = 2}};
            together[i] = bits_of_all(device, shapes[i % 2]);
        });
    }
    for (std::thread& user : users) user.join();
    for (int i = 0; i < 3; ++i) CHECK(together[i] == alone[i % 2]);
}

TEST_CASE("contexts: one goes from thread to thread, as long as they take turns") {
    const sizes shape{.rows = 37, .width = 24, .classes = 50};
    ht::cpu device{{.threads = 2}};
    bits rounds[3];
    for (bits& round : rounds) std::thread([&] { round = bits_of_all(device, shape); }).join();
    CHECK(rounds[0] == rounds[1]);
    CHECK(rounds[0] == rounds[2]);
}

}  // namespace contexts_tests
