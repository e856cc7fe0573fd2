// SPDX-License-Identifier: MIT
/// \file
/// Blocks out of segments by size classes that are kept when they are free, as PyTorch's CUDACachingAllocator does it.
///
/// A size is rounded up to a multiple of 512 bytes. Up to 1 MiB, blocks come from segments of 2 MiB; larger ones from
/// segments of 20 MiB, and from 10 MiB on from a segment of their own size, rounded up to 2 MiB. The smallest free block
/// of the pool (small or large) is taken and split if what is left is 512 bytes or more (small) or more than 1 MiB
/// (large); a freed block is joined with its free neighbours. Segments of which nothing is in use are returned when
/// memory is short. Constants and rules are those of PyTorch's c10/cuda/CUDACachingAllocator.cpp.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <halftone/memory/block_allocator.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

class caching_blocks final : public block_allocator {
  public:
    using block_allocator::block_allocator;
    ~caching_blocks() override {
        for (auto b = all_.begin(); b != all_.end();) {
            const auto end = end_of_segment(b);
            source().unreserve(b->data, bytes_between(b, end), kind());
            b = end;
        }
    }

    std::byte* allocate(std::size_t bytes) override {
        bytes = round_up(bytes, granule);
        pool& from = pools_[bytes > most_of_small];
        auto best = smallest(from, bytes);
        if (best == from.end()) {
            grow(bytes);
            best = smallest(from, bytes);
        }
        std::byte* const data = best->second;
        from.erase(best);
        const auto b = find(data);
        b->is_free = false;
        const std::size_t left = b->bytes - bytes;
        if (bytes > most_of_small ? left > most_of_small : left >= granule) {
            b->bytes = bytes;
            all_.insert(b + 1, {data + bytes, left, true, false, b->is_small});
            reserve_lists();
            add(from, left, data + bytes);
        }
        return data;
    }
    void deallocate(std::byte* block, std::size_t) noexcept override {
        auto b = find(block);
        pool& to = pools_[!b->is_small];
        if (b + 1 != all_.end() && (b + 1)->is_free && !(b + 1)->begins_segment) {
            remove(to, *(b + 1));
            b->bytes += (b + 1)->bytes;
            all_.erase(b + 1);
        }
        if (!b->begins_segment && (b - 1)->is_free) {
            remove(to, *(b - 1));
            (b - 1)->bytes += b->bytes;
            b = all_.erase(b) - 1;
        }
        b->is_free = true;
        add(to, b->bytes, b->data);
    }
    bool settle() override { return std::exchange(grew_, false); }  // with more segments, others may fit best
    void release_cached() override {
        bool released = false;
        for (auto b = all_.begin(); b != all_.end();) {
            if (!b->is_free || !b->begins_segment || end_of_segment(b) != b + 1) {
                ++b;
                continue;
            }
            remove(pools_[!b->is_small], *b);
            reserved_ -= b->bytes;
            source().unreserve(b->data, b->bytes, kind());
            b = all_.erase(b);
            released = true;
        }
        if (released) change();
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
        bool is_free, begins_segment, is_small;
    };
    using iterator = std::vector<block>::iterator;
    /// Free blocks by size, and by address among those of one size.
    using pool = std::vector<std::pair<std::size_t, std::byte*>>;

    iterator find(const std::byte* data) {
        return std::lower_bound(all_.begin(), all_.end(), data,
                                [](const block& b, const std::byte* at) { return b.data < at; });
    }
    iterator end_of_segment(iterator b) {
        return std::find_if(b + 1, all_.end(), [](const block& next) { return next.begins_segment; });
    }
    static std::size_t bytes_between(iterator first, iterator last) {
        return static_cast<std::size_t>((last - 1)->data + (last - 1)->bytes - first->data);
    }
    static pool::iterator smallest(pool& p, std::size_t bytes) {
        return std::lower_bound(p.begin(), p.end(), std::pair<std::size_t, std::byte*>(bytes, nullptr));
    }
    static void add(pool& p, std::size_t bytes, std::byte* data) {
        const std::pair<std::size_t, std::byte*> entry(bytes, data);
        p.insert(std::lower_bound(p.begin(), p.end(), entry), entry);
    }
    static void remove(pool& p, const block& b) {
        p.erase(std::lower_bound(p.begin(), p.end(), std::pair<std::size_t, std::byte*>(b.bytes, b.data)));
    }
    /// So that freeing never allocates.
    void reserve_lists() {
        for (pool& p : pools_) {
            if (p.capacity() < all_.size()) p.reserve(all_.capacity());
        }
    }

    /// A new segment with room for `bytes`. Near the end of memory it has just that size.
    void grow(std::size_t bytes) {
        std::size_t size = bytes <= most_of_small     ? small_segment
                           : bytes < least_of_its_own ? large_segment
                                                      : round_up(bytes, rounding_of_its_own);
        std::byte* data = source().try_reserve(size, kind());
        if (data == nullptr) {
            source().release_cached();
            data = source().try_reserve(size, kind());
        }
        if (data == nullptr) data = source().reserve(size = bytes, kind());
        all_.insert(find(data), {data, size, true, true, bytes <= most_of_small});
        reserve_lists();
        add(pools_[bytes > most_of_small], size, data);
        reserved_ += size;
        grew_ = true;
        change();
    }

    std::vector<block> all_;  ///< by address, free and used
    pool pools_[2];           ///< small, large
    std::size_t reserved_ = 0;
    bool grew_ = false;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
