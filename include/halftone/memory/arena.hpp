// SPDX-License-Identifier: MIT
/// \file
/// An arena: memory for the tensors of one training step, in blocks of any size that are freed in any order.
///
/// How it takes and divides its memory is an option of the device: arena_kind (memory/resource.hpp), for example
///
///     ht::cpu device{{.arenas = ht::arena_kind::growable}};
///
/// With each kind, the steps after the first ones allocate nothing from the system.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include <halftone/memory/block_allocator.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Allocates blocks for the results of one step at a time from a resource's memory, and counts them there as memory of
/// one kind. All blocks must be freed before the arena is destroyed. Not thread-safe.
class arena {
  public:
    /// An arena of the kind that the resource's arenas have. A growable arena on a resource without ranges of addresses
    /// (page_bytes() is 0) has segments.
    arena(memory_resource& source, memory_kind kind)
        : source_(&source), kind_(kind), blocks_(allocator_for(source, kind)) {}
    arena(const arena&) = delete;
    arena& operator=(const arena&) = delete;
    ~arena() {
        // A tape destroyed in the middle of a step has not freed its blocks.
        if (live_ != 0) source_->usage().remove(live_, kind_);
    }

    /// A block, aligned to block_alignment. If there is no memory, what arenas and workspaces hold unused is released
    /// and the request tried once more; then throws out_of_memory.
    std::byte* allocate(std::size_t bytes);

    /// Frees a block; `bytes` is the requested size.
    void deallocate(std::byte* block, std::size_t bytes) noexcept;

    /// If no block is in use, gives memory the layout that the next allocation would give it (segments: one). Returns
    /// true if the same calls may still need more memory.
    bool settle() { return blocks_->settle(); }

    /// Bytes in use now.
    std::size_t live() const { return live_; }
    /// The largest number of bytes in use at one time since the arena was constructed.
    std::size_t peak() const { return peak_; }
    /// Bytes taken from the resource, used or not.
    std::size_t reserved() const { return blocks_->reserved(); }
    /// How the blocks of the present or last step are placed, in a sentence: a planned arena says whether the step
    /// follows its plan, and if not, why. Others say their kind.
    std::string reason() const { return blocks_->reason(); }

  private:
    static std::unique_ptr<detail::block_allocator> allocator_for(memory_resource& source, memory_kind kind);

    memory_resource* source_;
    memory_kind kind_;
    std::unique_ptr<detail::block_allocator> blocks_;
    std::size_t live_ = 0, peak_ = 0;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/memory/arena.body.hpp>
#endif
