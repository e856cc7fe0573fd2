// SPDX-License-Identifier: MIT
/// \file
/// Memory for what a step makes and drops again: blocks of any size, given back in any order.
///
/// The first step of a shape lets the arena grow, segment by segment. Once everything has been given back, the next
/// allocation replaces the segments by a single one of their size, so that every later step runs in the same place and
/// takes nothing from the system. The same sequence of calls gives the same addresses.
#pragma once

#include <algorithm>
#include <vector>

#include <halftone/memory/resource.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled has what follows and is no template
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

/// Blocks for the results of one step at a time, of a resource's memory and counted there as of one kind. What is
/// allocated has to be given back before the arena ends. One thread at a time.
class arena final : public detail::capture_dependency {
  public:
    arena(memory_resource& source, memory_kind kind)
        : detail::capture_dependency(&source.capture_dependencies(), "results lie elsewhere"), source_(&source), kind_(kind) {}
    ~arena() {
        // A tape destroyed in the middle of a step drops what it still held.
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
        source_->usage().add(bytes, kind_);
        return block;
    }

    /// Gives a block back; `bytes` as it was asked for.
    void deallocate(std::byte* block, std::size_t bytes) noexcept {
        bytes = round_up(std::max<std::size_t>(bytes, 1), block_alignment);
        live_ -= bytes;
        source_->usage().remove(bytes, kind_);
        // Ranges are sorted by address; a neighbour of the same segment takes the block in.
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

    /// Where nothing is out, brings about what the next allocation would: a single segment. The same calls fit into it
    /// but for the odd case of another order of gaps.
    bool settle() override {
        if (live_ != 0 || segments_.size() < 2) return false;
        consolidate();
        return true;
    }

    /// Bytes that are out now.
    std::size_t live() const { return live_; }
    /// The largest number of bytes that were out at one time since the arena was made, or since reset_peak().
    std::size_t peak() const { return peak_; }
    /// The peak begins anew, at what is out now.
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
        for (const segment& s : segments_) source_->unreserve(s.data, s.bytes);
        segments_.clear();
        free_.clear();
        add_segment(all);
    }

    bool begins_segment(const std::byte* at) const {
        return std::any_of(segments_.begin(), segments_.end(), [at](const segment& s) { return s.data == at; });
    }

    std::vector<range>::iterator grow(std::size_t bytes) {
        constexpr std::size_t least = std::size_t{1} << 20;
        const std::size_t size = std::max({bytes, least, reserved() / 4});
        try {
            add_segment(size);
        } catch (const out_of_memory&) {
            if (size == bytes) throw;
            add_segment(bytes);  // room to spare would have been nice; what was asked for may still fit
        }
        return std::find_if(free_.begin(), free_.end(),
                            [&](const range& r) { return r.data == segments_.back().data; });
    }

    void add_segment(std::size_t bytes) {
        segments_.push_back({source_->reserve(bytes, kind_), bytes});
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
