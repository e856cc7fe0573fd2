// SPDX-License-Identifier: MIT
/// \file
/// What each kind of arena does in its own way: plans and runs that deviate from them, ranges that grow in place, and
/// size classes.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/memory/arena.hpp>
#include <halftone/memory/arena_plans.hpp>
#include <halftone/memory/planned.hpp>
#include <halftone/memory/slab_plan.hpp>

#include "support/random.hpp"

namespace memory_arena_kinds_tests {

namespace ht = halftone;
using ht::arena_kind;
using ht::memory_kind;
using ht::detail::slab_plan;

constexpr std::size_t mebibyte = std::size_t{1} << 20;

bool mentions(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

// ---- plans

/// A random step: each block lives for a while.
struct random_step {
    std::vector<slab_plan::event> events;
    std::vector<std::size_t> sizes;

    random_step(std::uint64_t seed, int blocks) {
        support::random data(seed);
        std::vector<slab_plan::event> live;
        while (static_cast<int>(sizes.size()) < blocks || !live.empty()) {
            // The last block that is in use is freed at the end.
            if (static_cast<int>(sizes.size()) < blocks && (live.size() < 2 || data.below(5) < 3)) {
                live.push_back(static_cast<slab_plan::event>(sizes.size()));
                sizes.push_back(static_cast<std::size_t>(64 * (1 + data.below(data.below(4) == 0 ? 5000 : 50))));
                events.push_back(slab_plan::allocates);
            } else {
                const auto which = data.below(static_cast<int>(live.size()));
                events.push_back(live[static_cast<std::size_t>(which)]);
                live.erase(live.begin() + which);
            }
        }
    }
};

TEST_CASE("slab_plan: blocks that are in use at the same time do not overlap") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const random_step step(seed, 120);
        const slab_plan plan = slab_plan::of(step.events, step.sizes);
        REQUIRE(plan.blocks.size() == step.sizes.size());
        CHECK(plan.bytes >= plan.peak_live);
        std::size_t most = 0;
        for (const slab_plan::block& a : plan.blocks) {
            most = std::max(most, a.offset + a.bytes);
            CHECK(a.offset % ht::block_alignment == 0);
            for (const slab_plan::block& b : plan.blocks) {
                const bool apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
                if (&a != &b && a.begin < b.end && b.begin < a.end && !apart) FAIL_CHECK(a.begin << ' ' << b.begin);
            }
        }
        CHECK(most == plan.bytes);
    }
}

TEST_CASE("slab_plan: a step with known lifetimes") {
    // 3 and 1 are in use, 1 is freed, 2 comes, 3 goes, 3 comes: best fit online would need 6, the plan needs 5.
    const std::vector<slab_plan::event> events{-1, -1, 1, -1, 0, -1, 2, 3};
    const slab_plan plan = slab_plan::of(events, {192, 64, 128, 192});
    CHECK(plan.peak_live == 320);
    CHECK(plan.bytes == 320);
}

/// Blocks with marks, on an arena; a block is its number.
class marked_blocks {
  public:
    explicit marked_blocks(ht::arena& on) : on_(&on) {}
    ~marked_blocks() {
        for (std::size_t i = 0; i < all_.size(); ++i) {
            if (all_[i].data != nullptr) free(static_cast<int>(i));
        }
    }
    void allocate(std::size_t bytes) {
        std::byte* const data = on_->allocate(bytes);
        std::memset(data, static_cast<int>(all_.size() % 251), bytes);
        all_.push_back({data, bytes});
    }
    void free(int which) {
        block& b = all_[static_cast<std::size_t>(which)];
        for (std::size_t i = 0; i < b.bytes; ++i) damaged += b.data[i] != static_cast<std::byte>(which % 251);
        on_->deallocate(std::exchange(b.data, nullptr), b.bytes);
    }
    std::byte* at(int which) const { return all_[static_cast<std::size_t>(which)].data; }

    std::size_t damaged = 0;

  private:
    struct block {
        std::byte* data;
        std::size_t bytes;
    };
    ht::arena* on_;
    std::vector<block> all_;
};

std::size_t run(ht::arena& on, const random_step& step) {
    marked_blocks blocks(on);
    std::size_t next = 0;
    for (const slab_plan::event e : step.events) {
        if (e == slab_plan::allocates) {
            blocks.allocate(step.sizes[next++]);
        } else {
            blocks.free(e);
        }
    }
    return blocks.damaged;
}

TEST_CASE("planned arena: records the first step, and follows its plan in one slab from then on") {
    ht::host_memory memory;
    memory.set_arenas(arena_kind::planned);
    ht::arena space(memory, memory_kind::activation);
    const random_step step(3, 200);
    const slab_plan plan = slab_plan::of(step.events, step.sizes);
    CHECK(space.reason() == "planned: nothing was allocated yet");
    CHECK(run(space, step) == 0);
    CHECK(space.reason() == "recorded: no plan begins with a block of " + std::to_string(step.sizes[0]) + " bytes");
    CHECK(run(space, step) == 0);
    CHECK(space.reason() == "planned: 200 blocks in " + std::to_string(plan.bytes) + " bytes, of which " +
                                std::to_string(plan.peak_live) + " are in use at one time");
    CHECK(space.reserved() == plan.bytes);
    const std::uint64_t allocations = memory.usage().allocations();
    for (int i = 0; i < 5; ++i) CHECK(run(space, step) == 0);
    CHECK(memory.usage().allocations() == allocations);
    CHECK(memory.plans().size() == 1);
    // Another arena of this memory begins with the plan.
    ht::arena other(memory, memory_kind::activation);
    CHECK(run(other, step) == 0);
    CHECK(mentions(other.reason(), "planned: 200 blocks"));
    CHECK(other.reserved() == plan.bytes);
}

TEST_CASE("planned arena: a new step that needs more at first leaves the slab, and what was captured in it, where they are") {
    ht::host_memory memory;
    memory.set_arenas(arena_kind::planned);
    ht::arena space(memory, memory_kind::activation);
    const auto steps = [&](std::size_t first, std::size_t second, std::size_t third) {
        std::byte* const a = space.allocate(first * mebibyte);
        std::byte* const b = space.allocate(second * mebibyte);
        space.deallocate(a, first * mebibyte);
        std::byte* const c = space.allocate(third * mebibyte);
        space.deallocate(c, third * mebibyte);
        space.deallocate(b, second * mebibyte);
        return a;
    };
    steps(8, 8, 4);
    std::byte* const slab = steps(8, 8, 4);
    CHECK(space.reserved() == 16 * mebibyte);
    const auto captured = memory.capture_dependencies().now();
    // 6 and 4 of 16 are in use, and then 12 are wanted beside the 4: by best fit there are only 6 before and 6 behind them.
    steps(6, 4, 12);
    CHECK(space.reserved() > 16 * mebibyte);
    CHECK(memory.capture_dependencies().settle());  // another run tells whether it fits
    CHECK(space.reserved() == 16 * mebibyte);
    steps(6, 4, 12);
    CHECK(mentions(space.reason(), "planned: 3 blocks"));
    CHECK_FALSE(memory.capture_dependencies().settle());
    CHECK(memory.capture_dependencies().first_change_since(captured) == nullptr);
    CHECK(steps(8, 8, 4) == slab);
    // Without settle(), at the beginning of the next step.
    steps(5, 4, 12);
    CHECK(steps(8, 8, 4) == slab);
    CHECK(space.reserved() == 16 * mebibyte);
    CHECK(memory.capture_dependencies().first_change_since(captured) == nullptr);
    // A larger one moves it.
    steps(20, 1, 1);
    CHECK(memory.capture_dependencies().settle());
    CHECK(memory.capture_dependencies().first_change_since(captured) != nullptr);
    CHECK(memory.usage().held() == space.reserved());
}

TEST_CASE("planned arena: after release_cached() the slab is that of the steps that follow, not of one that was given up before") {
    ht::host_memory memory;
    memory.set_arenas(arena_kind::planned);
    ht::arena space(memory, memory_kind::activation);
    const auto step = [&](std::size_t each) {
        std::byte* const a = space.allocate(each * mebibyte);
        std::byte* const b = space.allocate(each * mebibyte);
        space.deallocate(b, each * mebibyte), space.deallocate(a, each * mebibyte);
    };
    step(8);  // as of a step that memory did not suffice for: its blocks have been freed, and no other step has begun
    memory.release_cached();
    CHECK(memory.usage().held() == 0);
    for (int i = 0; i < 3; ++i) step(2);
    CHECK(space.reserved() == 4 * mebibyte);
}

TEST_CASE("planned arena: a step that deviates, at any call and in any way, keeps its contents, and says where") {
    const random_step step(7, 40);
    for (std::size_t at = 1; at + 1 < step.events.size(); ++at) {
        for (const char* const how : {"size", "more", "fewer"}) {
            CAPTURE(at);
            CAPTURE(how);
            ht::host_memory memory;
            memory.set_arenas(arena_kind::planned);
            ht::arena space(memory, memory_kind::activation);
            REQUIRE(run(space, step) == 0);
            REQUIRE(run(space, step) == 0);
            std::size_t damaged = 0;
            bool differs = false;
            {
                marked_blocks blocks(space);
                std::size_t next = 0;
                std::vector<int> numbers;  // of the step's blocks among the marked ones
                int made = 0;
                const auto allocate = [&](std::size_t bytes) {
                    blocks.allocate(bytes);
                    return made++;
                };
                for (std::size_t i = 0; i < step.events.size(); ++i) {
                    const slab_plan::event e = step.events[i];
                    const std::string now = i == at ? how : "";
                    if (e == slab_plan::allocates) {
                        differs = differs || now == "size";
                        numbers.push_back(allocate(step.sizes[next++] + (now == "size" ? 6400 : 0)));
                        if (now == "more") allocate(128), differs = true;
                    } else if (now != "fewer") {
                        blocks.free(numbers[static_cast<std::size_t>(e)]);
                        if (now == "more") allocate(100'000), differs = true;
                    } else {
                        differs = true;  // it is freed at the end
                    }
                }
                damaged = blocks.damaged;
                if (differs) {
                    CHECK(mentions(space.reason(), "not followed from block "));
                } else {
                    CHECK(mentions(space.reason(), "planned: "));
                }
            }
            CHECK(damaged == 0);
            CHECK(space.live() == 0);
            CHECK(memory.usage().live() == 0);
            // The usual step is planned for again, if only after it was recorded once more.
            for (int i = 0; i < 3; ++i) CHECK(run(space, step) == 0);
            CHECK(mentions(space.reason(), "planned: 40 blocks"));
            CHECK(memory.plans().size() <= 2);
        }
    }
}

TEST_CASE("planned arena: the sentences about deviations") {
    ht::host_memory memory;
    memory.set_arenas(arena_kind::planned);
    ht::arena space(memory, memory_kind::activation);
    const auto usual = [&] {
        marked_blocks b(space);
        b.allocate(128), b.allocate(256), b.free(0), b.allocate(64), b.free(2), b.free(1);
    };
    usual(), usual();
    CHECK(mentions(space.reason(), "planned: 3 blocks in 384 bytes, of which 384 are in use at one time"));
    {
        marked_blocks b(space);
        b.allocate(128), b.allocate(320);
        CHECK(space.reason() == "not followed from block 2 on: 320 bytes, for which the plan has 256");
    }
    usual(), usual();
    {
        marked_blocks b(space);
        b.allocate(128), b.allocate(256), b.allocate(64);
        CHECK(space.reason() == "not followed from block 3 on: allocated where the plan frees one");
    }
    usual(), usual();
    {
        marked_blocks b(space);
        b.allocate(128), b.allocate(256), b.free(1);
        CHECK(space.reason() == "not followed from block 3 on: another block is freed before it than in the plan");
    }
}

TEST_CASE("planned arena: steps that never end are not planned, and their memory is used as without a plan") {
    ht::host_memory memory;
    memory.set_arenas(arena_kind::planned);
    ht::arena space(memory, memory_kind::activation);
    std::byte* const kept = space.allocate(64);
    for (int i = 0; i < 20'000; ++i) space.deallocate(space.allocate(128), 128);
    CHECK(space.reason() == "not planned: more than 16384 blocks before all are freed");
    CHECK(space.reserved() <= 2 * mebibyte);
    space.deallocate(kept, 64);
    CHECK(memory.plans().size() == 0);
}

TEST_CASE("planned arena: contexts in several threads may share plans") {
    ht::host_memory first;
    first.set_arenas(arena_kind::planned);
    std::vector<std::thread> threads;
    std::atomic<std::size_t> damaged{0};
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&first, &damaged] {
            ht::host_memory memory;
            memory.use_arenas_of(first);
            ht::arena space(memory, memory_kind::activation);
            for (std::uint64_t i = 0; i < 40; ++i) damaged += run(space, random_step(i % 5, 30));
        });
    }
    for (std::thread& t : threads) t.join();
    CHECK(damaged == 0);
    CHECK(first.plans().size() == 5);
}

// ---- ranges that grow

TEST_CASE("growable arena: blocks stay where they are while it grows, and nothing captured is invalidated") {
    ht::host_memory memory;
    if (memory.page_bytes() == 0) {
        MESSAGE("not checked: arenas that grow in place (this system has no such ranges)");
        return;
    }
    memory.set_arenas(arena_kind::growable);
    ht::arena space(memory, memory_kind::activation);
    std::byte* const first = space.allocate(mebibyte);
    std::memset(first, 7, mebibyte);
    const auto before = memory.capture_dependencies().now();
    std::vector<std::byte*> blocks;
    for (int i = 0; i < 20; ++i) blocks.push_back(space.allocate(3 * mebibyte));
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        CHECK(blocks[i] == first + mebibyte + 3 * mebibyte * i);  // one range without gaps
        std::memset(blocks[i], static_cast<int>(i), 3 * mebibyte);
    }
    CHECK(first[mebibyte - 1] == std::byte{7});
    CHECK(space.reserved() == 62 * mebibyte);  // pages of 2 MiB
    for (std::byte* const b : blocks) space.deallocate(b, 3 * mebibyte);
    CHECK(space.settle() == false);
    CHECK(memory.capture_dependencies().first_change_since(before) == nullptr);
    // What is unused goes back, the block that is in use stays, and the arena grows again in the same place.
    memory.release_cached();
    CHECK(space.reserved() == 2 * mebibyte);
    CHECK(memory.usage().held() == 2 * mebibyte);
    CHECK(memory.capture_dependencies().first_change_since(before) != nullptr);
    CHECK(space.allocate(3 * mebibyte) == first + mebibyte);
    CHECK(first[0] == std::byte{7});
    space.deallocate(first + mebibyte, 3 * mebibyte);
    space.deallocate(first, mebibyte);
}

TEST_CASE("growable arena: pages between blocks in use are returned, too, and get memory again") {
    ht::host_memory memory;
    if (memory.page_bytes() == 0) {
        MESSAGE("not checked: arenas that grow in place (this system has no such ranges)");
        return;
    }
    memory.set_arenas(arena_kind::growable);
    ht::arena space(memory, memory_kind::activation);
    std::vector<std::byte*> blocks;
    for (int i = 0; i < 5; ++i) blocks.push_back(space.allocate(4 * mebibyte));
    space.deallocate(blocks[1], 4 * mebibyte);
    space.deallocate(blocks[2], 4 * mebibyte);
    memory.release_cached();
    CHECK(space.reserved() == 12 * mebibyte);
    // One page run is enough for this block; both are needed for none, so that a larger one comes at the end.
    std::byte* const small = space.allocate(3 * mebibyte);
    CHECK(small == blocks[1]);
    CHECK(space.reserved() == 16 * mebibyte);
    std::byte* const large = space.allocate(9 * mebibyte);
    CHECK(large == blocks[4] + 4 * mebibyte);
    std::memset(small, 1, 3 * mebibyte);
    std::memset(large, 1, 9 * mebibyte);
    space.deallocate(small, 3 * mebibyte);
    space.deallocate(large, 9 * mebibyte);
    for (const int i : {0, 3, 4}) space.deallocate(blocks[static_cast<std::size_t>(i)], 4 * mebibyte);
    memory.release_cached();
    CHECK(memory.usage().held() == 0);
}

TEST_CASE("growable arena: without ranges it has segments; a captured step is told of memory that it lacks") {
    ht::host_memory memory;
    memory.set_arenas(arena_kind::growable);
    ht::arena space(memory, memory_kind::activation);
    CHECK(space.reason() == std::string(memory.page_bytes() == 0 ? "segments" : "growable"));
    std::byte* const block = space.allocate(mebibyte);
    {
        const ht::memory_resource::capturing guard(memory);
        CHECK_THROWS_AS(space.allocate(8 * mebibyte), ht::capture_error);
        CHECK_THROWS_AS(memory.release_cached(), ht::capture_error);
        std::byte* const rest = space.allocate(mebibyte / 2);  // of the page that is there
        space.deallocate(rest, mebibyte / 2);
    }
    space.deallocate(block, mebibyte);
    // The range of an arena that ends in a capture is kept until the end of the capture.
    auto ends = std::make_unique<ht::arena>(memory, memory_kind::activation);
    std::byte* const of_graph = ends->allocate(mebibyte);
    ends->deallocate(of_graph, mebibyte);
    const ht::memory_resource::capturing guard(memory);
    ends.reset();
    std::memset(of_graph, 1, mebibyte);
    CHECK(memory.usage().held() == space.reserved());
}

// ---- size classes

TEST_CASE("caching arena: small and large segments, split and joined") {
    ht::planned_memory memory;
    memory.set_arenas(arena_kind::caching);
    ht::arena space(memory, memory_kind::activation);
    std::byte* const a = space.allocate(100);
    CHECK(space.reserved() == 2 * mebibyte);
    std::byte* const b = space.allocate(513);
    CHECK(b == a + 512);
    CHECK(space.allocate(1) == b + 1024);
    std::byte* const large = space.allocate(mebibyte + 1);
    CHECK(space.reserved() == 22 * mebibyte);
    std::byte* const next = space.allocate(5 * mebibyte);
    CHECK(next == large + mebibyte + 512);
    CHECK(space.reserved() == 22 * mebibyte);
    std::byte* const own = space.allocate(11 * mebibyte);  // fits into what is left of 20 MiB
    CHECK(own == next + 5 * mebibyte);
    std::byte* const other = space.allocate(11 * mebibyte);  // 12 MiB of its own; 1 MiB that is left is not split off
    CHECK(space.reserved() == 34 * mebibyte);
    space.deallocate(b, 513);
    CHECK(space.allocate(600) == b);
    // The segment of 20 MiB is one free block again, and is found for a block of its size.
    for (const auto& [block, bytes] : {std::pair{own, 11 * mebibyte}, {large, mebibyte + 1}, {next, 5 * mebibyte}})
        space.deallocate(block, bytes);
    CHECK(space.allocate(20 * mebibyte) == large);
    space.deallocate(large, 20 * mebibyte);
    memory.release_cached();
    CHECK(space.reserved() == 14 * mebibyte);
    space.deallocate(other, 11 * mebibyte);
    memory.release_cached();
    CHECK(space.reserved() == 2 * mebibyte);
    CHECK(memory.usage().held() == 2 * mebibyte);
}

TEST_CASE("caching arena: a small block comes out of a large segment where no small one has room, and goes back there") {
    ht::planned_memory memory;
    memory.set_arenas(arena_kind::caching);
    ht::arena space(memory, memory_kind::activation);
    std::byte* const large = space.allocate(20 * mebibyte);
    space.deallocate(large, 20 * mebibyte);
    CHECK(space.reserved() == 20 * mebibyte);
    // As in a step of a short sequence behind the warm-up: what was large is small now.
    std::byte* const a = space.allocate(mebibyte);
    std::byte* const b = space.allocate(100);
    CHECK(a == large);
    CHECK(b == large + mebibyte);
    CHECK(space.allocate(2 * mebibyte) == b + 512);
    CHECK(space.reserved() == 20 * mebibyte);
    std::byte* const rest = space.allocate(17 * mebibyte - 512);
    std::byte* const small = space.allocate(100);  // a segment of small blocks, as there is no room at all
    CHECK(space.reserved() == 22 * mebibyte);
    CHECK(space.allocate(100) == small + 512);
    for (const auto& [block, bytes] : {std::pair{b, std::size_t{100}}, {b + 512, 2 * mebibyte}, {a, mebibyte}, {rest, 17 * mebibyte - 512}})
        space.deallocate(block, bytes);
    CHECK(space.allocate(20 * mebibyte) == large);
    // Blocks of small segments are not taken for large ones.
    std::byte* const other = space.allocate(mebibyte + 1);
    CHECK((other < small || other >= small + 2 * mebibyte));
    space.deallocate(other, mebibyte + 1);
    space.deallocate(large, 20 * mebibyte);
    space.deallocate(small, 100);
    space.deallocate(small + 512, 100);
    CHECK(memory.usage().live() == 0);
    memory.release_cached();
    CHECK(memory.usage().held() == 0);
}

TEST_CASE("caching arena: what is left of a small block is one of its own from 512 bytes on, of a large one above 1 MiB") {
    ht::planned_memory memory;
    memory.set_arenas(arena_kind::caching);
    ht::arena space(memory, memory_kind::activation);
    std::byte* const a = space.allocate(mebibyte);
    std::byte* const b = space.allocate(mebibyte - 512);
    CHECK(space.allocate(512) == b + mebibyte - 512);
    CHECK(space.reserved() == 2 * mebibyte);
    std::byte* const large = space.allocate(10 * mebibyte - 512);  // of 20 MiB, which blocks of less than 10 MiB share
    CHECK(space.reserved() == 22 * mebibyte);
    std::byte* const next = space.allocate(9 * mebibyte + 512);    // leaves 1 MiB, which stays with it
    CHECK(next == large + 10 * mebibyte - 512);
    std::byte* const own = space.allocate(10 * mebibyte);
    CHECK(space.reserved() == 32 * mebibyte);
    std::byte* const more = space.allocate(mebibyte);
    CHECK(space.reserved() == 34 * mebibyte);
    for (const auto& [block, bytes] : {std::pair{a, mebibyte}, {more, mebibyte}, {b, mebibyte - 512}, {b + mebibyte - 512, std::size_t{512}},
                                       {large, 10 * mebibyte - 512}, {next, 9 * mebibyte + 512}, {own, 10 * mebibyte}})
        space.deallocate(block, bytes);
    memory.release_cached();
    CHECK(memory.usage().held() == 0);
}

TEST_CASE("caching arena: captured steps are told of segments that are added or returned, and that more may be needed") {
    ht::planned_memory memory;
    memory.set_arenas(arena_kind::caching);
    ht::arena space(memory, memory_kind::activation);
    const auto empty = memory.capture_dependencies().now();
    std::byte* const block = space.allocate(100);
    CHECK(memory.capture_dependencies().first_change_since(empty) != nullptr);
    CHECK(space.settle());
    CHECK(!space.settle());
    const auto before = memory.capture_dependencies().now();
    space.deallocate(block, 100);
    CHECK(memory.capture_dependencies().first_change_since(before) == nullptr);
    memory.release_cached();
    CHECK(memory.capture_dependencies().first_change_since(before) != nullptr);
}

}  // namespace memory_arena_kinds_tests
