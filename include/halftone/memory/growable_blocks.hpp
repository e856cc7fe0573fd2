// SPDX-License-Identifier: MIT
/// \file
/// Blocks out of one large range of addresses, whose pages get memory as they are needed.
///
/// The range grows at its end and never moves: addresses of captured steps stay valid, and there are no gaps between
/// segments (PyTorch: expandable_segments). A block is taken from the smallest gap that has room for it, and from the end
/// of the range only if no gap has. So the places of a step's blocks follow from its calls alone, not from how far the
/// range has grown, and the same calls need no further page. Pages are 2 MiB on a CPU, a GPU's granularity there.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <halftone/memory/block_allocator.hpp>
#include <halftone/memory/free_ranges.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class growable_blocks final : public block_allocator {
  public:
    using block_allocator::block_allocator;
    ~growable_blocks() override {
        for (const pages& p : pages_) {
            if (p.have_memory) source().usage().remove_block(p.bytes, kind(), p.data);
        }
        if (range_.data != nullptr) source().unreserve_addresses(range_);
    }

    std::byte* allocate(std::size_t bytes) override {
        auto from = find(bytes);
        if (from == free_.end() && grow(bytes)) from = find(bytes);
        if (from == free_.end()) {
            source().release_cached();
            if (!grow(bytes)) source().refuse(bytes, kind());
            from = find(bytes);
        }
        return free_.take(from, bytes);
    }
    void deallocate(std::byte* block, std::size_t bytes) noexcept override { free_.give(block, bytes); }
    void release_cached() override {
        const std::size_t before = reserved_;
        for (pages& p : pages_) {
            if (!p.have_memory || !free_.contain(p.data, p.bytes)) continue;
            free_.take_at(p.data, p.bytes);
            source().decommit(p.data, p.bytes, kind());
            p.have_memory = false;
            reserved_ -= p.bytes;
        }
        while (!pages_.empty() && !pages_.back().have_memory) pages_.pop_back();
        if (reserved_ != before) change();
    }
    std::size_t reserved() const override { return reserved_; }
    std::string reason() const override { return name(arena_kind::growable); }

  private:
    /// Neighbouring pages that got memory together, and are returned together.
    struct pages {
        std::byte* data;
        std::size_t bytes;
        bool have_memory;
    };

    /// The end of the pages that have or had memory.
    std::byte* top() const { return pages_.empty() ? range_.data : pages_.back().data + pages_.back().bytes; }
    /// The first byte of the free range at the end.
    std::byte* last_range() const {
        return !free_.empty() && free_.back().data + free_.back().bytes == top() ? free_.back().data : top();
    }

    free_ranges::iterator find(std::size_t bytes) {
        const auto gap = free_.best(bytes, last_range());
        if (gap != free_.end() || free_.empty() || free_.back().data != last_range() || free_.back().bytes < bytes)
            return gap;
        return free_.end() - 1;
    }
    /// Makes room for a block; false if there is no memory.
    bool grow(std::size_t bytes) {
        // Where memory was returned, if there is room for the block then.
        for (pages& p : pages_) {
            if (p.have_memory || free_.bytes_around(p.data, p.bytes) < bytes) continue;
            if (!source().try_commit(p.data, p.bytes, kind())) continue;
            p.have_memory = true;
            reserved_ += p.bytes;
            free_.give(p.data, p.bytes);
            return true;
        }
        if (range_.data == nullptr) range_ = source().reserve_addresses();
        std::byte* const end = top();
        const std::size_t more = round_up(bytes - static_cast<std::size_t>(end - last_range()), source().page_bytes());
        if (range_.data == nullptr || more > static_cast<std::size_t>(range_.data + range_.bytes - end)) return false;
        pages_.reserve(pages_.size() + 1);
        if (!source().try_commit(end, more, kind())) return false;
        pages_.push_back({end, more, true});
        reserved_ += more;
        free_.give(end, more);
        return true;
    }

    address_range range_;
    std::vector<pages> pages_;  ///< without gaps, from the range's beginning on
    free_ranges free_;
    std::size_t reserved_ = 0;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
