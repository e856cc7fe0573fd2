// SPDX-License-Identifier: MIT
/// \file
/// What a context promises: one thread at a time, and as many contexts as there are threads, all at once. Compiled with the
/// thread sanitizer, where there is one.
#include <cstdint>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel.hpp>

#include "kernel/workspace/operations.hpp"

namespace {

using namespace workspace_checks;
using bits = std::vector<std::uint64_t>;

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

}  // namespace
