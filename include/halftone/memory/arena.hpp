// SPDX-License-Identifier: MIT
/// \file
/// An arena: memory for the tensors of one training step, in blocks of any size that are freed in any order.
///
/// In the first step of a shape the arena grows by segments. As soon as all blocks have been freed, the next allocation
/// replaces the segments by one of their total size, so that all later steps run in that segment and allocate nothing
/// from the system. The same sequence of calls gives the same addresses.
#pragma once

#include <algorithm>
#include <vector>

#include <halftone/memory/resource.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

/// Allocates blocks for the results of one step at a time from a resource's memory, and counts them there as memory of
/// one kind. All blocks must be freed before the arena is destroyed. Not thread-safe.
class arena final : public detail::capture_dependency {
  public:
    arena(memory_resource& source, memory_kind kind)
        : detail::capture_dependency(&source.capture_dependencies(), "the memory of results has moved"),
          source_(&source),
          kind_(kind) {}
    ~arena() {
        // A tape destroyed in the middle of a step has not freed its blocks.
        if (live_ != 0) source_->usage().remove(live_, kind_);
        for (const segment& s : segments_) source_->unreserve(s.data, s.bytes);
    }

    /// A block, aligned to block_alignment. Throws out_of_memory.
    std::byte* allocate(std::size_t bytes) {
        bytes = round_up(std::max<std::size_t>(bytes, 1), block_alignment);
        if (live_ == 0 && segments_.size() > 1) consolidate();
        auto best = free_.end();
        for (auto range = free_.begin(); range != free_.end(); ++range) {
            if (range->bytes >= bytes && (best == free_.end() || range->bytes < best->bytes)) best = range;
        }
        if (best == free_.end()) best = grow(bytes);
        std::byte* block = best->data;
        if (best->bytes == bytes) {
            free_.erase(best);
        } else {
            best->data += bytes;
            best->bytes -= bytes;
        }
        live_ += bytes;
        peak_ = std::max(peak_, live_);
        source_->usage().add(bytes, kind_, block);
        return block;
    }

    /// Frees a block; `bytes` is the requested size.
    void deallocate(std::byte* block, std::size_t bytes) noexcept {
        bytes = round_up(std::max<std::size_t>(bytes, 1), block_alignment);
        live_ -= bytes;
        source_->usage().remove(bytes, kind_, block);
        // Free ranges are sorted by address; the block is merged with free neighbours of the same segment.
        auto next = std::lower_bound(free_.begin(), free_.end(), block,
                                     [](const range& r, const std::byte* at) { return r.data < at; });
        const bool joins_next = next != free_.end() && next->data == block + bytes && !begins_segment(next->data);
        const bool joins_previous =
            next != free_.begin() && (next - 1)->data + (next - 1)->bytes == block && !begins_segment(block);
        if (joins_next && joins_previous) {
            (next - 1)->bytes += bytes + next->bytes;
            free_.erase(next);
        } else if (joins_next) {
            next->data = block;
            next->bytes += bytes;
        } else if (joins_previous) {
            (next - 1)->bytes += bytes;
        } else {
            free_.insert(next, {block, bytes});
        }
    }

    /// If no block is in use, replaces the segments by one, as the next allocation would. Returns true if the same
    /// calls may still need more memory, because gaps in another order may be too small.
    bool settle() override {
        if (live_ != 0 || segments_.size() < 2) return false;
        consolidate();
        return true;
    }

    /// If no block is in use, returns all segments to the system.
    void release_cached() override {
        if (live_ != 0 || segments_.empty()) return;
        change();
        drop_segments();
    }

    /// Bytes in use now.
    std::size_t live() const { return live_; }
    /// The largest number of bytes in use at one time since the arena was constructed, or since reset_peak().
    std::size_t peak() const { return peak_; }
    /// Sets the peak to the bytes in use now.
    void reset_peak() { peak_ = live_; }
    /// Bytes taken from the resource, used or not.
    std::size_t reserved() const {
        std::size_t bytes = 0;
        for (const segment& s : segments_) bytes += s.bytes;
        return bytes;
    }

  private:
    struct segment {
        std::byte* data;
        std::size_t bytes;
    };
    using range = segment;

    void consolidate() {
        const std::size_t all = reserved();
        change();
        drop_segments();
        add_segment(all);
    }
    void drop_segments() {
        for (const segment& s : segments_) source_->unreserve(s.data, s.bytes);
        segments_.clear();
        free_.clear();
    }

    bool begins_segment(const std::byte* at) const {
        return std::any_of(segments_.begin(), segments_.end(), [at](const segment& s) { return s.data == at; });
    }

    std::vector<range>::iterator grow(std::size_t bytes) {
        constexpr std::size_t least = std::size_t{1} << 20;
        const std::size_t size = std::max({bytes, least, reserved() / 4});
        std::byte* const more = size == bytes ? nullptr : source_->try_reserve(size, kind_);
        if (more != nullptr) {
            add_segment(more, size);
        } else {
            add_segment(bytes);  // without the reserve for later steps, the requested size may still fit
        }
        return std::find_if(free_.begin(), free_.end(),
                            [&](const range& r) { return r.data == segments_.back().data; });
    }

    void add_segment(std::size_t bytes) { add_segment(source_->reserve(bytes, kind_), bytes); }
    void add_segment(std::byte* data, std::size_t bytes) {
        segments_.push_back({data, bytes});
        const range whole{segments_.back().data, bytes};
        free_.insert(std::lower_bound(free_.begin(), free_.end(), whole,
                                      [](const range& a, const range& b) { return a.data < b.data; }),
                     whole);
    }

    memory_resource* source_;
    memory_kind kind_;
    std::vector<segment> segments_;
    std::vector<range> free_;
    std::size_t live_ = 0, peak_ = 0;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
