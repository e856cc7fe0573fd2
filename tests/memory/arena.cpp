// SPDX-License-Identifier: MIT
/// \file
/// The arena: random allocation and release, segments joined, the same addresses for the same calls.
#include <cstdint>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/memory/arena.hpp>

#include "support/random.hpp"

namespace {

namespace ht = halftone;
using ht::memory_kind;

struct piece {
    std::byte* data;
    std::size_t bytes;
    unsigned char mark;
};

bool holds_mark(const piece& p) {
    for (std::size_t i = 0; i < p.bytes; ++i) {
        if (p.data[i] != static_cast<std::byte>(p.mark)) return false;
    }
    return true;
}

TEST_CASE("arena: blocks never overlap, whatever the order of releases, and memory is reused") {
    ht::host_memory memory;
    {
        ht::arena space(memory, memory_kind::activation);
        support::random data(1);
        std::vector<piece> pieces;
        std::size_t live = 0, peak = 0;
        int damaged = 0, misaligned = 0;
        for (int step = 0; step < 4000; ++step) {
            if (pieces.size() < 5 || data.below(2) == 0) {
                const auto bytes = static_cast<std::size_t>(data.below(3) == 0 ? data.below(200'000) : data.below(500));
                const auto mark = static_cast<unsigned char>(data.below(256));
                piece p{space.allocate(bytes), bytes, mark};
                if (reinterpret_cast<std::uintptr_t>(p.data) % ht::block_alignment != 0) ++misaligned;
                std::memset(static_cast<void*>(p.data), mark, bytes);
                pieces.push_back(p);
                live += ht::round_up(std::max<std::size_t>(bytes, 1), ht::block_alignment);
            } else {
                const auto which = static_cast<std::size_t>(data.below(static_cast<int>(pieces.size())));
                if (!holds_mark(pieces[which])) ++damaged;
                space.deallocate(pieces[which].data, pieces[which].bytes);
                live -= ht::round_up(std::max<std::size_t>(pieces[which].bytes, 1), ht::block_alignment);
                pieces[which] = pieces.back();
                pieces.pop_back();
            }
            peak = std::max(peak, live);
            REQUIRE(space.live() == live);
        }
        CHECK(damaged == 0);
        CHECK(misaligned == 0);
        CHECK(space.peak() == peak);
        CHECK(memory.usage().live(memory_kind::activation) == live);
        CHECK(memory.usage().held() == space.reserved());
        for (const piece& p : pieces) space.deallocate(p.data, p.bytes);
        CHECK(space.live() == 0);

        // All blocks are joined again: one block of the whole size fits without growing.
        const std::size_t whole = space.reserved();
        std::byte* all = space.allocate(whole);
        CHECK(space.reserved() == whole);
        space.deallocate(all, whole);
    }
    CHECK(memory.usage().live() == 0);
    CHECK(memory.usage().held() == 0);
}

TEST_CASE("arena: after the first step no step allocates from the resource, and each gets the same addresses") {
    ht::host_memory memory;
    ht::arena space(memory, memory_kind::activation);
    const std::size_t sizes[] = {3'000'000, 100, 700'000, 64, 2'000'000, 1};
    std::vector<std::byte*> first;
    std::uint64_t allocations = 0;
    for (int step = 0; step < 5; ++step) {
        std::vector<std::byte*> blocks;
        for (const std::size_t bytes : sizes) blocks.push_back(space.allocate(bytes));
        for (std::size_t i = 0; i < blocks.size(); ++i) space.deallocate(blocks[i], sizes[i]);
        if (step == 1) allocations = memory.usage().allocations();
        if (step == 1) first = blocks;
        if (step > 1) CHECK(blocks == first);
    }
    CHECK(memory.usage().allocations() == allocations);
}

TEST_CASE("arena: running out of memory does not change it") {
    ht::host_memory memory(4 << 20);
    ht::arena space(memory, memory_kind::activation);
    std::byte* block = space.allocate(1 << 20);
    CHECK_THROWS_AS(space.allocate(8 << 20), ht::out_of_memory);
    CHECK(space.live() == 1 << 20);
    CHECK(memory.usage().live() == 1 << 20);
    std::byte* other = space.allocate(1 << 19);
    space.deallocate(other, 1 << 19);
    space.deallocate(block, 1 << 20);
    CHECK(space.live() == 0);
}

TEST_CASE("arena: near the limit it allocates the requested size, without a reserve") {
    ht::host_memory memory((1 << 20) + (1 << 18));
    ht::arena space(memory, memory_kind::activation);
    std::byte* most = space.allocate(1 << 20);
    std::byte* little = space.allocate(1 << 16);
    CHECK(space.live() == (1 << 20) + (1 << 16));
    space.deallocate(most, 1 << 20);
    space.deallocate(little, 1 << 16);
}

TEST_CASE("arena: destroyed in the middle of a step, it releases all memory") {
    ht::host_memory memory;
    {
        ht::arena space(memory, memory_kind::activation);
        space.allocate(1000);
        space.allocate(5 << 20);
    }
    CHECK(memory.usage().live() == 0);
    CHECK(memory.usage().held() == 0);
}

}  // namespace
