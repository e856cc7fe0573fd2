// SPDX-License-Identifier: MIT
/// \file
/// Capture dependencies report their changes; while work is captured, no memory is allocated or freed.
#include <cstring>

#include <doctest/doctest.h>

#include <halftone/exec/workspace.hpp>
#include <halftone/memory/arena.hpp>

namespace memory_capture_dependency_tests {

namespace ht = halftone;

/// Host memory that counts released blocks.
class counting_memory final : public ht::memory_resource {
  public:
    int released = 0;
    const char* who_captures = nullptr;

    ~counting_memory() override { free_deferred(); }

    void write(void*, const void*, std::size_t) override {}
    void read(void*, const void*, std::size_t) override {}
    void clear(void*, std::size_t) override {}

  private:
    std::byte* obtain(std::size_t bytes) override {
        return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{ht::block_alignment}, std::nothrow));
    }
    void release(std::byte* block, std::size_t) noexcept override {
        ++released;
        ::operator delete(block, std::align_val_t{ht::block_alignment});
    }
    const char* captured_by_others() const noexcept override { return who_captures; }
};

TEST_CASE("capture_dependencies: an arena changes when its segments are joined, and not when it grows") {
    ht::host_memory memory;
    ht::arena arena(memory, ht::memory_kind::activation);
    CHECK_FALSE(memory.capture_dependencies().settle());
    std::byte* const small = arena.allocate(100);
    const auto before = memory.capture_dependencies().now();
    CHECK(before.size() == 1);
    std::byte* const large = arena.allocate(std::size_t{1} << 22);
    CHECK(memory.capture_dependencies().first_change_since(before) == nullptr);
    CHECK_FALSE(memory.capture_dependencies().settle());  // a block is in use
    arena.deallocate(large, std::size_t{1} << 22);
    arena.deallocate(small, 100);
    CHECK(memory.capture_dependencies().first_change_since(before) == nullptr);
    CHECK(memory.capture_dependencies().settle());
    CHECK(std::strcmp(memory.capture_dependencies().first_change_since(before), "the memory of results has moved") == 0);
    const auto after = memory.capture_dependencies().now();
    const auto blocks = memory.usage().allocations();
    CHECK_FALSE(memory.capture_dependencies().settle());
    std::byte* const again = arena.allocate(std::size_t{1} << 22);
    arena.deallocate(again, std::size_t{1} << 22);
    CHECK(memory.usage().allocations() == blocks);
    CHECK(memory.capture_dependencies().first_change_since(after) == nullptr);
}

TEST_CASE(
    "capture_dependencies: scratch memory changes when it is replaced; a new dependency is no change, a removed one is") {
    ht::host_memory memory;
    ht::workspace scratch(memory);
    { const ht::workspace::lease first(scratch, 64), second(scratch, 4096); }
    CHECK_FALSE(memory.capture_dependencies().settle());  // joins the memory of both into one block
    const auto before = memory.capture_dependencies().now();
    const auto blocks = memory.usage().allocations();
    { const ht::workspace::lease first(scratch, 64), second(scratch, 4096); }
    CHECK(memory.usage().allocations() == blocks);
    {
        const ht::arena later(memory, ht::memory_kind::activation);
        CHECK(memory.capture_dependencies().first_change_since(before) == nullptr);
    }
    CHECK(memory.capture_dependencies().first_change_since(before) == nullptr);
    { const ht::workspace::lease larger(scratch, 1 << 20); }
    CHECK(std::strcmp(memory.capture_dependencies().first_change_since(before), "scratch memory has moved") == 0);
    auto with_arena = memory.capture_dependencies().now();
    {
        const ht::arena arena(memory, ht::memory_kind::activation);
        with_arena = memory.capture_dependencies().now();
        CHECK(with_arena.size() == 2);
    }
    CHECK(std::strcmp(memory.capture_dependencies().first_change_since(with_arena), "the memory of results has moved") == 0);
}

TEST_CASE("capturing: no memory is allocated, and returned memory is released at the end") {
    counting_memory memory;
    ht::buffer kept(memory, 100, ht::memory_kind::other);
    {
        const ht::memory_resource::capturing guard(memory);
        CHECK_THROWS_AS(ht::buffer(memory, 1, ht::memory_kind::other), ht::capture_error);
        CHECK_THROWS_AS(memory.expect_no_capture("that"), ht::capture_error);
        CHECK_THROWS_AS(ht::memory_resource::capturing{memory}, ht::state_error);
        kept = {};
        CHECK(memory.usage().held() == 0);
        CHECK(memory.released == 0);
    }
    CHECK(memory.released == 1);
    CHECK_NOTHROW(memory.expect_no_capture("that"));
    CHECK_NOTHROW(ht::buffer(memory, 1, ht::memory_kind::other));
}

TEST_CASE("captured by the program: no memory is allocated, and returned memory is released afterwards") {
    counting_memory memory;
    ht::buffer kept(memory, 100, ht::memory_kind::other), other(memory, 200, ht::memory_kind::other);
    ht::workspace scratch(memory);
    { const ht::workspace::lease warm(scratch, 4096); }
    memory.who_captures = "the program captures the stream";
    CHECK_THROWS_WITH_AS(ht::buffer(memory, 1, ht::memory_kind::gradient),
                         doctest::Contains("captured stream: 1 bytes are requested for gradient, while the program "
                                           "captures the stream, and a graph would own them"),
                         ht::capture_error);
    CHECK_THROWS_WITH_AS(memory.expect_no_capture("that waits"),
                         "captured stream: the program captures the stream, and that waits", ht::capture_error);
    CHECK_THROWS_AS(ht::memory_resource::capturing{memory}, ht::capture_error);
    CHECK_NOTHROW(ht::workspace::lease(scratch, 4096));
    kept = {};
    CHECK(memory.usage().held() == 256 + 4096);
    CHECK(memory.released == 0);
    SUBCASE("when a block is next requested") {
        memory.who_captures = nullptr;
        kept = ht::buffer(memory, 1, ht::memory_kind::other);
        CHECK(memory.released == 1);
    }
    SUBCASE("when a block is next returned") {
        memory.who_captures = nullptr;
        other = {};
        CHECK(memory.released == 2);
    }
    SUBCASE("when a capture by halftone ends") {
        memory.who_captures = nullptr;
        { const ht::memory_resource::capturing guard(memory); }
        CHECK(memory.released == 1);
    }
}

}  // namespace memory_capture_dependency_tests
