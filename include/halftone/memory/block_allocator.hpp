// SPDX-License-Identifier: MIT
/// \file
/// What an arena asks for blocks: one interface of the allocators that arena_kind names.
///
/// An allocator takes segments or pages from a resource and divides them into blocks. Sizes are multiples of
/// block_alignment. It is registered with the resource, which tells it when memory is short (release_cached) and when a
/// step is about to be captured (settle); it notes a change when memory that a graph may use has moved or is gone.
#pragma once

#include <algorithm>
#include <string>

#include <halftone/memory/resource.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class block_allocator : public capture_dependency {
  public:
    block_allocator(memory_resource& source, memory_kind kind)
        : capture_dependency(&source.capture_dependencies(), "the memory of results has moved"),
          source_(&source),
          kind_(kind) {}
    virtual ~block_allocator() = default;

    /// A block of `bytes`. Throws out_of_memory; the blocks in use are unaffected then.
    virtual std::byte* allocate(std::size_t bytes) = 0;
    /// Frees a block; `bytes` as in the call of allocate().
    virtual void deallocate(std::byte* block, std::size_t bytes) noexcept = 0;
    /// Bytes taken from the resource, used or not.
    virtual std::size_t reserved() const = 0;
    /// For people: how the blocks of the present step are placed, and why.
    virtual std::string reason() const = 0;

  protected:
    memory_resource& source() const { return *source_; }
    memory_kind kind() const { return kind_; }

    /// From now on memory is taken without a reserve, because a request failed, here or elsewhere.
    void note_scarcity() { is_scarce_ = true; }
    /// How much to take where `bytes` are needed and `with_reserve` would spare later requests: no reserve of more than a
    /// quarter of what the resource's limit leaves, which others of the same step will need.
    std::size_t growth(std::size_t bytes, std::size_t with_reserve) const {
        const std::size_t left = source_->limit() - std::min(source_->limit(), source_->usage().held());
        return is_scarce_ || with_reserve > left / 4 ? bytes : with_reserve;
    }

  private:
    memory_resource* source_;
    memory_kind kind_;
    bool is_scarce_ = false;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
