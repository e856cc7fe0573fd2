// SPDX-License-Identifier: MIT
/// \file
/// Arenas of each kind: random allocation and release, the same addresses for the same calls, the limit. What each kind
/// does in its own way is in arena_kinds.cpp.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/exec/workspace.hpp>
#include <halftone/memory/arena.hpp>

#include "support/random.hpp"

namespace memory_arena_tests {

namespace ht = halftone;
using ht::memory_kind;

struct piece {
    std::byte* data;
    std::size_t bytes;
    unsigned char mark;
};

constexpr ht::arena_kind kinds[] = {ht::arena_kind::segments, ht::arena_kind::planned, ht::arena_kind::growable,
                                    ht::arena_kind::caching};

bool holds_mark(const piece& p) {
    for (std::size_t i = 0; i < p.bytes; ++i) {
        if (p.data[i] != static_cast<std::byte>(p.mark)) return false;
    }
    return true;
}

TEST_CASE("arena: blocks never overlap, whatever the order of releases, and memory is reused") {
    for (const ht::arena_kind kind : kinds) {
        CAPTURE(ht::name(kind));
        ht::host_memory memory;
        memory.set_arenas(kind);
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
            if (kind == ht::arena_kind::segments || kind == ht::arena_kind::growable) {
                const std::size_t whole = space.reserved();
                std::byte* all = space.allocate(whole);
                CHECK(space.reserved() == whole);
                space.deallocate(all, whole);
            }
        }
        CHECK(memory.usage().live() == 0);
        CHECK(memory.usage().held() == 0);
    }
}

TEST_CASE("arena: after the first step no step allocates from the resource, and each gets the same addresses") {
    for (const ht::arena_kind kind : kinds) {
        CAPTURE(ht::name(kind));
        ht::host_memory memory;
        memory.set_arenas(kind);
        ht::arena space(memory, memory_kind::activation);
        const std::size_t sizes[] = {3'000'000, 100, 700'000, 64, 2'000'000, 1};
        std::vector<std::byte*> first;
        std::uint64_t allocations = 0;
        for (int step = 0; step < 6; ++step) {
            std::vector<std::byte*> blocks;
            for (const std::size_t bytes : sizes) blocks.push_back(space.allocate(bytes));
            for (std::size_t i = 0; i < blocks.size(); ++i) space.deallocate(blocks[i], sizes[i]);
            if (step == 2) allocations = memory.usage().allocations();
            if (step == 2) first = blocks;
            if (step > 2) CHECK(blocks == first);
        }
        CHECK(memory.usage().allocations() == allocations);
    }
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

TEST_CASE("arena: what others hold unused is released when memory is short, and the request tried once more") {
    constexpr std::size_t mebibyte = std::size_t{1} << 20;
    for (const ht::arena_kind kind : kinds) {
        CAPTURE(ht::name(kind));
        ht::host_memory memory(48 * mebibyte);
        memory.set_arenas(kind);
        ht::arena one(memory, memory_kind::activation), other(memory, memory_kind::activation);
        ht::workspace scratch(memory);
        { const ht::workspace::lease work(scratch, 4 * mebibyte); }
        // Two steps, after which nothing is in use, and a block of a third one.
        for (int step = 0; step < 2; ++step) {
            std::byte* const block = one.allocate(20 * mebibyte);
            std::byte* const second = one.allocate(4 * mebibyte);
            one.deallocate(block, 20 * mebibyte);
            one.deallocate(second, 4 * mebibyte);
        }
        CHECK(memory.usage().held() >= 28 * mebibyte);
        CHECK(memory.usage().live() == 4 * mebibyte);
        std::byte* const large = other.allocate(44 * mebibyte);
        std::memset(large, 1, 44 * mebibyte);
        CHECK(memory.usage().live() == 44 * mebibyte);
        CHECK(one.reserved() == 0);
        // Nothing is left to be released: the one error, and all as it was.
        std::string sentence;
        try {
            one.allocate(20 * mebibyte);
        } catch (const ht::out_of_memory& e) {
            sentence = e.what();
        }
        CHECK(sentence.find("bytes for activation; held: activation 46137344") != std::string::npos);
        CHECK_THROWS_AS(ht::workspace::lease(scratch, 8 * mebibyte), ht::out_of_memory);
        CHECK(memory.usage().live() == 44 * mebibyte);
        other.deallocate(large, 44 * mebibyte);
        // And both go on.
        std::byte* const again = one.allocate(20 * mebibyte);
        std::memset(again, 2, 20 * mebibyte);
        { const ht::workspace::lease work(scratch, 4 * mebibyte); }
        one.deallocate(again, 20 * mebibyte);
        memory.release_cached();
        CHECK(memory.usage().held() == 0);
    }
}

TEST_CASE("arena: bytes taken from the system are counted by kind") {
    for (const ht::arena_kind kind : kinds) {
        CAPTURE(ht::name(kind));
        ht::host_memory memory;
        memory.set_arenas(kind);
        const ht::buffer weights(memory, 1000, memory_kind::master);
        {
            ht::arena space(memory, memory_kind::activation);
            std::byte* const block = space.allocate(3 << 20);
            CHECK(memory.usage().held(memory_kind::activation) == space.reserved());
            CHECK(memory.usage().held(memory_kind::activation) >= 3 << 20);
            CHECK(memory.usage().held(memory_kind::master) == 1024);
            CHECK(memory.usage().held() == 1024 + space.reserved());
            space.deallocate(block, 3 << 20);
        }
        CHECK(memory.usage().held(memory_kind::activation) == 0);
        CHECK(memory.usage().peak_held(memory_kind::activation) >= 3 << 20);
    }
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
    for (const ht::arena_kind kind : kinds) {
        CAPTURE(ht::name(kind));
        ht::host_memory memory;
        memory.set_arenas(kind);
        {
            ht::arena space(memory, memory_kind::activation);
            space.allocate(1000);
            space.allocate(5 << 20);
        }
        CHECK(memory.usage().live() == 0);
        CHECK(memory.usage().held() == 0);
    }
}

}  // namespace memory_arena_tests
