// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in arena.hpp that are no templates.
#pragma once

#include <halftone/memory/arena.hpp>
#include <halftone/memory/caching_blocks.hpp>
#include <halftone/memory/growable_blocks.hpp>
#include <halftone/memory/planned_blocks.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

HALFTONE_OUT_OF_LINE std::byte* arena::allocate(std::size_t bytes) {
    bytes = round_up(std::max<std::size_t>(bytes, 1), block_alignment);
    std::byte* const block = blocks_->allocate(bytes);
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    source_->usage().add(bytes, kind_, block);
    return block;
}

HALFTONE_OUT_OF_LINE void arena::deallocate(std::byte* block, std::size_t bytes) noexcept {
    bytes = round_up(std::max<std::size_t>(bytes, 1), block_alignment);
    live_ -= bytes;
    source_->usage().remove(bytes, kind_, block);
    blocks_->deallocate(block, bytes);
}

HALFTONE_OUT_OF_LINE std::unique_ptr<detail::block_allocator> arena::allocator_for(memory_resource& source, memory_kind kind) {
    switch (source.arenas()) {
        case arena_kind::planned:
            return std::make_unique<detail::planned_blocks>(source, kind);
        case arena_kind::caching:
            return std::make_unique<detail::caching_blocks>(source, kind);
        case arena_kind::growable:
            if (source.page_bytes() != 0) return std::make_unique<detail::growable_blocks>(source, kind);
            break;
        case arena_kind::segments:
            break;
    }
    return std::make_unique<detail::segment_blocks>(source, kind);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
