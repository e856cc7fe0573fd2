// SPDX-License-Identifier: MIT
/// \file
/// Blocks out of segments by size classes that are kept when they are free, as PyTorch's CUDACachingAllocator does it.
///
/// A size is rounded up to a multiple of 512 bytes. Up to 1 MiB, blocks come from segments of 2 MiB; larger ones from
/// segments of 20 MiB, and from 10 MiB on from a segment of their own size, rounded up to 2 MiB. The smallest free block
/// of the pool (small or large) is taken and split if what is left is 512 bytes or more (small) or more than 1 MiB
/// (large); a freed block is joined with its free neighbours. Segments of which nothing is in use are returned when
/// memory is short. Constants and rules are those of PyTorch's c10/cuda/CUDACachingAllocator.cpp, but for one: a small
/// block for which the small pool has no room is taken from the large one before a segment is added. Blocks of a shorter
/// sequence that are small, and were large in the warm-up at the longest one, would else need segments of their own.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <halftone/memory/block_allocator.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class caching_blocks final : public block_allocator {
  public:
    using block_allocator::block_allocator;
    ~caching_blocks() override {
        for (const segment& s : segments_) source().unreserve(s.data, s.bytes, kind());
    }

    std::byte* allocate(std::size_t bytes) override {
        bytes = round_up(bytes, granule);
        const bool is_small = bytes <= most_of_small;
        pool* from = &pools_[!is_small];
        auto best = smallest(*from, bytes);
        if (best == from->end() && is_small) best = smallest(*(from = &pools_[true]), bytes);
        if (best == from->end()) {
            grow(bytes);
            best = smallest(*(from = &pools_[!is_small]), bytes);
        }
        const free_block found = *best;
        const auto place = best - from->begin();
        segment& s = segment_of(found.data);
        const std::size_t left = found.bytes - bytes;
        const bool is_split = is_small ? left >= granule : left > most_of_small;
        auto b = find(s, found.data);
        if (is_split) {
            reserve_lists(blocks_ + 1);
            b = s.blocks.insert(b + 1, {found.data + bytes, left, true}) - 1;  // nothing is changed until this has not thrown
            b->bytes = bytes;
            ++blocks_;
        }
        b->is_free = false;
        from->erase(from->begin() + place);
        if (is_split) add(*from, {left, found.data + bytes});
        return found.data;
    }
    void deallocate(std::byte* block, std::size_t) noexcept override {
        segment& s = segment_of(block);
        pool& to = pools_[!s.is_small];
        auto b = find(s, block);
        b->is_free = true;
        if (b + 1 != s.blocks.end() && (b + 1)->is_free) {
            remove(to, {(b + 1)->bytes, (b + 1)->data});
            join_with_next(s, b);
        }
        if (b != s.blocks.begin() && (b - 1)->is_free) {
            remove(to, {(b - 1)->bytes, (b - 1)->data});
            join_with_next(s, --b);
        }
        add(to, {b->bytes, b->data});
    }
    void note_refusal() override { note_scarcity(); }
    bool settle() override { return std::exchange(grew_, false); }  // with more segments, others may fit best
    void release_cached() override {
        const std::size_t before = reserved_;
        std::erase_if(segments_, [this](const segment& s) {
            if (!s.blocks.front().is_free || s.blocks.size() != 1) return false;
            remove(pools_[!s.is_small], {s.bytes, s.data});
            --blocks_;
            reserved_ -= s.bytes;
            source().unreserve(s.data, s.bytes, kind());
            return true;
        });
        if (reserved_ != before) change();
    }
    std::size_t reserved() const override { return reserved_; }
    std::string reason() const override { return name(arena_kind::caching); }

  private:
    static constexpr std::size_t mebibyte = std::size_t{1} << 20;
    static constexpr std::size_t granule = 512, most_of_small = mebibyte;
    static constexpr std::size_t small_segment = 2 * mebibyte, large_segment = 20 * mebibyte;
    static constexpr std::size_t least_of_its_own = 10 * mebibyte, rounding_of_its_own = 2 * mebibyte;

    struct block {
        std::byte* data;
        std::size_t bytes;
        bool is_free;
    };
    struct segment {
        std::byte* data;
        std::size_t bytes;
        bool is_small;
        std::vector<block> blocks;  ///< by address, free and used
    };
    struct free_block {
        std::size_t bytes;
        std::byte* data;
        bool operator<(const free_block& b) const { return bytes != b.bytes ? bytes < b.bytes : data < b.data; }
    };
    /// Free blocks by size, and by address among those of one size.
    using pool = std::vector<free_block>;

    segment& segment_of(const std::byte* data) {
        return *(std::upper_bound(segments_.begin(), segments_.end(), data,
                                  [](const std::byte* at, const segment& s) { return at < s.data; }) -
                 1);
    }
    static std::vector<block>::iterator find(segment& s, const std::byte* data) {
        return std::lower_bound(s.blocks.begin(), s.blocks.end(), data,
                                [](const block& b, const std::byte* at) { return b.data < at; });
    }
    static pool::iterator smallest(pool& p, std::size_t bytes) {
        return std::lower_bound(p.begin(), p.end(), free_block{bytes, nullptr});
    }
    static void add(pool& p, const free_block& b) { p.insert(std::lower_bound(p.begin(), p.end(), b), b); }
    static void remove(pool& p, const free_block& b) { p.erase(std::lower_bound(p.begin(), p.end(), b)); }
    void join_with_next(segment& s, std::vector<block>::iterator b) noexcept {
        b->bytes += (b + 1)->bytes;
        s.blocks.erase(b + 1);
        --blocks_;
    }
    /// So that freeing never allocates.
    void reserve_lists(std::size_t blocks) {
        for (pool& p : pools_) {
            if (p.capacity() < blocks) p.reserve(2 * blocks);
        }
    }

    /// A new segment with room for `bytes`. Near the end of memory it has just that size.
    void grow(std::size_t bytes) {
        std::size_t size = growth(bytes, bytes <= most_of_small     ? small_segment
                                         : bytes < least_of_its_own ? large_segment
                                                                    : round_up(bytes, rounding_of_its_own));
        reserve_lists(blocks_ + 1);
        segments_.reserve(segments_.size() + 1);
        std::vector<block> blocks(1);
        std::byte* data = source().try_reserve(size, kind());
        if (data == nullptr) {
            source().release_cached();
            data = source().try_reserve(size, kind());
        }
        if (data == nullptr) data = source().reserve(size = bytes, kind());
        blocks[0] = {data, size, true};
        segments_.insert(std::upper_bound(segments_.begin(), segments_.end(), data,
                                          [](const std::byte* at, const segment& s) { return at < s.data; }),
                         {data, size, bytes <= most_of_small, std::move(blocks)});
        ++blocks_;
        add(pools_[bytes > most_of_small], {size, data});
        reserved_ += size;
        grew_ = true;
        change();
    }

    std::vector<segment> segments_;  ///< by address
    pool pools_[2];                  ///< free blocks of small segments, of large ones
    std::size_t blocks_ = 0;         ///< of all segments
    std::size_t reserved_ = 0;
    bool grew_ = false;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
