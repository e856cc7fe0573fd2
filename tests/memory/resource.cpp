// SPDX-License-Identifier: MIT
/// \file
/// Blocks and buffers: aligned, counted, an exception beyond the limit, nothing leaked.
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/memory/resource.hpp>

#include "support/sanitizer.hpp"

namespace memory_resource_tests {

namespace ht = halftone;
using ht::memory_kind;

TEST_CASE("host_memory: blocks are aligned, do not overlap, and count in whole cache lines") {
    ht::host_memory memory;
    std::vector<std::pair<std::byte*, std::size_t>> blocks;
    std::size_t total = 0;
    for (std::size_t bytes = 1; bytes < 3000; bytes = bytes * 3 + 1) {
        std::byte* block = memory.allocate(bytes, memory_kind::other);
        CHECK(reinterpret_cast<std::uintptr_t>(block) % ht::block_alignment == 0);
        std::memset(block, static_cast<int>(blocks.size()), bytes);
        blocks.emplace_back(block, bytes);
        total += ht::round_up(bytes, ht::block_alignment);
    }
    CHECK(memory.usage().live() == total);
    CHECK(memory.usage().live(memory_kind::other) == total);
    CHECK(memory.usage().held() == total);
    CHECK(memory.usage().allocations() == blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        CHECK(blocks[i].first[0] == static_cast<std::byte>(i));
        CHECK(blocks[i].first[blocks[i].second - 1] == static_cast<std::byte>(i));
        memory.deallocate(blocks[i].first, blocks[i].second, memory_kind::other);
    }
    CHECK(memory.usage().live() == 0);
    CHECK(memory.usage().held() == 0);
    CHECK(memory.usage().peak() == total);
}

TEST_CASE("host_memory: beyond the limit an exception says what was requested and what is in use; nothing changes") {
    ht::host_memory memory(1000);
    CHECK_THROWS_WITH_AS(memory.allocate(1001, memory_kind::activation),
                         "memory: no 1024 bytes for activation; held: nothing", ht::out_of_memory);
    const ht::buffer weights(memory, 256, memory_kind::master), moments(memory, 512, memory_kind::moment);
    CHECK_THROWS_WITH_AS(memory.allocate(256, memory_kind::activation),
                         "memory: no 256 bytes for activation; held: master 256, moment 512", ht::out_of_memory);
    CHECK(memory.usage().live() == 768);
    CHECK(memory.usage().peak() == 768);
    CHECK(memory.usage().allocations() == 2);
    const ht::buffer last(memory, 192, memory_kind::activation);  // the remaining bytes can still be allocated
    CHECK(last.data() != nullptr);
}

TEST_CASE("host_memory: sizes near the largest integer are refused without overflow") {
    if (support::has_sanitizer) return;
    ht::host_memory memory;
    CHECK_THROWS_AS(memory.allocate(std::size_t{1} << 62, memory_kind::other), ht::out_of_memory);
    CHECK_THROWS_AS(memory.allocate(std::numeric_limits<std::size_t>::max() - 10, memory_kind::other),
                    ht::out_of_memory);
    CHECK(memory.usage().live() == 0);
    CHECK(memory.usage().allocations() == 0);
}

TEST_CASE("buffer: releases its block once, however it is moved") {
    ht::host_memory memory;
    {
        ht::buffer a(memory, 100, memory_kind::gradient);
        std::byte* block = a.data();
        ht::buffer b(std::move(a));
        CHECK(b.data() == block);
        CHECK(b.bytes() == 100);
        CHECK(a.data() == nullptr);  // NOLINT(bugprone-use-after-move)
        CHECK(a.bytes() == 0);
        CHECK(memory.usage().live() == 128);

        ht::buffer c(memory, 64, memory_kind::moment);
        c = std::move(b);
        CHECK(c.data() == block);
        CHECK(memory.usage().live() == 128);
        CHECK(memory.usage().live(memory_kind::moment) == 0);
        ht::buffer& same = c;
        c = std::move(same);
        CHECK(c.data() == block);
        c.swap(b);
        CHECK(b.data() == block);
    }
    CHECK(memory.usage().live() == 0);
}

TEST_CASE("buffer: of no bytes") {
    ht::host_memory memory;
    const ht::buffer nothing(memory, 0, memory_kind::other), default_made;
    CHECK(nothing.data() == nullptr);
    CHECK(default_made.data() == nullptr);
    CHECK(memory.usage().allocations() == 0);
}

}  // namespace memory_resource_tests
