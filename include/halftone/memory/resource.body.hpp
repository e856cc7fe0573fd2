// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in resource.hpp that are no templates.
#pragma once

#include <halftone/memory/resource.hpp>
#include <halftone/memory/arena_plans.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE std::shared_ptr<arena_plans> make_arena_plans() { return std::make_shared<arena_plans>(); }

}  // namespace detail

HALFTONE_OUT_OF_LINE std::byte* memory_resource::allocate(std::size_t bytes, memory_kind kind) {
    std::byte* block = reserve(bytes, kind);
    usage_.add(round_up(bytes, block_alignment), kind, block);
    return block;
}

HALFTONE_OUT_OF_LINE std::byte* memory_resource::reserve(std::size_t bytes, memory_kind kind) {
    std::byte* block = try_reserve(bytes, kind);
    if (block == nullptr) {
        release_cached();
        block = try_reserve(bytes, kind);
    }
    if (block == nullptr) refuse(bytes, kind);
    return block;
}

HALFTONE_OUT_OF_LINE std::byte* memory_resource::try_reserve(std::size_t bytes, memory_kind kind) {
    expect_no_capture_for(bytes, kind);
    free_deferred();
    if (overflows(bytes)) return nullptr;
    bytes = round_up(bytes, block_alignment);
    std::byte* block = usage_.allows(bytes, kind) ? obtain(bytes) : nullptr;
    if (block != nullptr) usage_.add_block(bytes, kind, block);
    return block;
}

HALFTONE_OUT_OF_LINE void memory_resource::unreserve(std::byte* block, std::size_t bytes, memory_kind kind) noexcept {
    bytes = round_up(bytes, block_alignment);
    usage_.remove_block(bytes, kind, block);
    give_back({block, bytes, false});
}

HALFTONE_OUT_OF_LINE void memory_resource::release_cached() {
    expect_no_capture("memory is returned to the system; do it before the step");
    capture_dependencies_.release_cached();
    free_deferred();
    trim();
}

HALFTONE_OUT_OF_LINE bool memory_resource::try_commit(std::byte* at, std::size_t bytes, memory_kind kind) {
    expect_no_capture_for(bytes, kind);
    free_deferred();
    if (!usage_.allows(bytes, kind) || !commit(at, bytes)) return false;
    usage_.add_block(bytes, kind, at);
    return true;
}

HALFTONE_OUT_OF_LINE void memory_resource::decommit(std::byte* at, std::size_t bytes, memory_kind kind) {
    expect_no_capture("memory is returned to the system; do it before the step");
    uncommit(at, bytes);
    usage_.remove_block(bytes, kind, at);
}

HALFTONE_OUT_OF_LINE void memory_resource::expect_no_capture(const char* sentence) const {
    if (is_capturing_) fail<capture_error>("captured step: ", sentence);
    if (const char* const who = captured_by_others()) fail<capture_error>("captured stream: ", who, ", and ", sentence);
}

HALFTONE_OUT_OF_LINE void memory_resource::free_now(const given_back& each) noexcept {
    if (each.is_range) {
        release_range({each.block, each.bytes});
    } else {
        release(each.block, each.bytes);
    }
}

HALFTONE_OUT_OF_LINE void memory_resource::give_back(const given_back& each) noexcept {
    if (is_capturing_ || captured_by_others() != nullptr) {
        deferred_.push_back(each);  // freeing it now would become part of the graph
    } else {
        free_deferred();
        free_now(each);
    }
}

HALFTONE_OUT_OF_LINE void memory_resource::expect_no_capture_for(std::size_t bytes, memory_kind kind) const {
    if (is_capturing_) {
        fail<capture_error>(
            "captured step: ", bytes, " bytes are requested inside the step, for ", name(kind),
            "; make tapes, accumulators and tensors before it, and let its first run need what all need");
    }
    if (const char* const who = captured_by_others()) {
        fail<capture_error>("captured stream: ", bytes, " bytes are requested for ", name(kind), ", while ", who,
                            ", and a graph would own them; do the same work once before the capture on the same "
                            "context, or give that a workspace (ht::workspace_bytes)");
    }
}

HALFTONE_OUT_OF_LINE void memory_resource::refuse(std::size_t bytes, memory_kind kind) const {
    std::string held;
    for (int i = 0; i < memory_kinds; ++i) {
        const auto each = static_cast<memory_kind>(i);
        if (usage_.live(each) != 0)
            held += detail::sentence(held.empty() ? "" : ", ", name(each), " ", usage_.live(each));
    }
    if (!overflows(bytes)) bytes = round_up(bytes, block_alignment);
    const std::string more = usage_.note_out_of_memory(bytes, kind);
    capture_dependencies_.note_refusal();
    fail<out_of_memory>("memory: no ", bytes, " bytes for ", name(kind), "; held: ", held.empty() ? "nothing" : held,
                        more);
}

HALFTONE_OUT_OF_LINE std::byte* host_memory::obtain(std::size_t bytes) {
    if (bytes > limit_ - usage().held()) return nullptr;
    auto* const block = static_cast<std::byte*>(::operator new(bytes, alignment_of(bytes), std::nothrow));
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    // Only a hint: memory without huge pages works as well.
    if (block != nullptr && bytes >= huge_page)
        static_cast<void>(madvise(block, bytes / huge_page * huge_page, MADV_HUGEPAGE));
#endif
    return block;
}

HALFTONE_OUT_OF_LINE void buffer::swap(buffer& other) noexcept {
    std::swap(source_, other.source_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(kind_, other.kind_);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
