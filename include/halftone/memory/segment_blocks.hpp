// SPDX-License-Identifier: MIT
/// \file
/// Blocks out of segments of any size, by best fit.
///
/// In the first step of a shape the segments become more. As soon as all blocks have been freed, the next allocation
/// replaces the segments by one of their total size, so that all later steps run in that segment and allocate nothing
/// from the system. The same sequence of calls gives the same addresses.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <halftone/memory/block_allocator.hpp>
#include <halftone/memory/free_ranges.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class segment_blocks : public block_allocator {
  public:
    using block_allocator::block_allocator;
    ~segment_blocks() override { drop_segments(); }

    std::byte* allocate(std::size_t bytes) override {
        if (live_ == 0 && std::exchange(was_refused_, false)) {
            release_cached();  // one segment of all that a failed step took could leave nothing for others
        } else if (live_ == 0 && segments_.size() > 1) {
            consolidate(reserved());
        }
        return take(bytes);
    }
    void deallocate(std::byte* block, std::size_t bytes) noexcept override {
        live_ -= bytes;
        free_.give(block, bytes, [this](const std::byte* at) { return begins_segment(at); });
    }
    bool settle() override {
        if (live_ != 0 || segments_.size() < 2) return false;
        consolidate(reserved());
        return true;  // gaps in another order may be too small
    }
    void release_cached() override {
        const std::size_t before = segments_.size();
        std::erase_if(segments_, [this](const segment& s) {
            const auto whole = std::find_if(free_.begin(), free_.end(), [&s](const free_ranges::range& r) {
                return r.data == s.data && r.bytes == s.bytes;
            });
            if (whole == free_.end()) return false;
            free_.take(whole, s.bytes);
            source().unreserve(s.data, s.bytes, kind());
            return true;
        });
        if (segments_.size() != before) change();
    }
    void note_refusal() override {
        was_refused_ = true;
        note_scarcity();
    }
    std::size_t reserved() const override {
        std::size_t bytes = 0;
        for (const segment& s : segments_) bytes += s.bytes;
        return bytes;
    }
    std::string reason() const override { return name(arena_kind::segments); }

  protected:
    struct segment {
        std::byte* data;
        std::size_t bytes;
    };
    const std::vector<segment>& segments() const { return segments_; }
    std::size_t live() const { return live_; }

    std::byte* take(std::size_t bytes) {
        auto best = free_.best(bytes);
        if (best == free_.end()) best = grow(bytes);
        live_ += bytes;
        return free_.take(best, bytes);
    }
    /// Takes a block at a given address, which is free.
    void take_at(std::byte* block, std::size_t bytes) {
        live_ += bytes;
        free_.take_at(block, bytes);
    }
    /// Replaces all segments, of which nothing is in use, by one.
    void consolidate(std::size_t bytes) {
        change();
        drop_segments();
        segments_.clear();
        free_.clear();
        add_segment(source().reserve(bytes, kind()), bytes);
    }

    /// Gives back all segments but the first, of which nothing is in use. This is no change: steps are captured while there
    /// is one segment alone (train/captured_step.hpp), which stays where it is.
    void keep_first_segment() noexcept {
        for (const segment& s : segments_) {
            if (s.data == segments_.front().data) continue;
            const auto whole = std::find_if(free_.begin(), free_.end(), [&s](const free_ranges::range& r) { return r.data == s.data; });
            free_.take(whole, s.bytes);
            source().unreserve(s.data, s.bytes, kind());
        }
        segments_.resize(1);
    }

  private:
    void drop_segments() noexcept {
        for (const segment& s : segments_) source().unreserve(s.data, s.bytes, kind());
    }
    bool begins_segment(const std::byte* at) const {
        return std::any_of(segments_.begin(), segments_.end(), [at](const segment& s) { return s.data == at; });
    }
    free_ranges::iterator grow(std::size_t bytes) {
        constexpr std::size_t least = std::size_t{1} << 20;
        const std::size_t size = growth(bytes, std::max({bytes, least, reserved() / 4}));
        std::byte* const more = size == bytes ? nullptr : source().try_reserve(size, kind());
        if (more != nullptr) {
            add_segment(more, size);
        } else {
            add_segment(source().reserve(bytes, kind()), bytes);  // without the reserve for later steps, it may still fit
        }
        return std::find_if(free_.begin(), free_.end(),
                            [&](const free_ranges::range& r) { return r.data == segments_.back().data; });
    }
    void add_segment(std::byte* data, std::size_t bytes) {
        segments_.push_back({data, bytes});
        free_.give(data, bytes, [this](const std::byte* at) { return begins_segment(at); });
    }

    std::vector<segment> segments_;
    free_ranges free_;
    std::size_t live_ = 0;
    bool was_refused_ = false;  ///< a request failed, here or elsewhere, since the last step began
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
