// SPDX-License-Identifier: MIT
/// \file
/// Memory that is prefetched while a product runs: the source of the next panels, the places of results.
///
/// Processors drop prefetches that come all at once, and those between two tiles delay the second tile. So tiles prefetch a
/// line or two every lookahead_depth of k, between their multiplications.
#pragma once

#include <cstddef>
#include <cstdint>

#include <halftone/config.hpp>
#include <halftone/kernel/matmul/cpu/tuning.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// What a tile prefetches: nothing, the panel of b behind its own, or what a lookahead says.
enum class tile_prefetch { nothing, next_panel, lookahead };

/// Runs of bytes, `stride` bytes from one to the next, whose cache lines are prefetched: the first line of every run, then
/// the second ones.
class strided_lines {
  public:
    static constexpr extent line = 64;

    strided_lines() = default;
    strided_lines(const void* first, extent runs, extent bytes, extent stride)
        : first_(static_cast<const std::byte*>(first)),
          next_(first_),
          stride_(stride),
          runs_(runs),
          left_(runs),
          count_(runs * lines_of(bytes, stride % line == 0 ? begin_of(first) : most_begin(bytes))) {}

    extent count() const { return count_; }
    HALFTONE_INLINE void prefetch(extent lines) {
        for (; lines > 0 && count_ > 0; --lines) {
            __builtin_prefetch(next_);
            next_ += stride_;
            --count_;
            if (--left_ > 0) continue;
            left_ = runs_;
            first_ += line;
            next_ = first_;
        }
    }

  private:
    /// Bytes from the beginning of its line to an address.
    static extent begin_of(const void* p) { return static_cast<extent>(reinterpret_cast<std::uintptr_t>(p) % line); }
    /// Bytes from the beginning of a line to a run's first one, where a run that may begin anywhere touches the most
    /// lines.
    static extent most_begin(extent bytes) { return bytes < line ? bytes - 1 : line - 1; }
    static extent lines_of(extent bytes, extent begin) { return bytes < 1 ? 0 : ceil_div(begin + bytes, line); }

    const std::byte *first_ = nullptr, *next_ = nullptr;
    extent stride_ = 0, runs_ = 0, left_ = 0, count_ = 0;
};

/// Rows of results that a tile is going to store, Bytes each, prefetched one or two at a time while it is multiplied. Stores
/// that all miss at once fill the line buffers, and the next tile's loads wait: a whole latency of memory a tile (Zen 4: 1.02
/// to 1.05). Tiles of little k end before the lines arrive and prefetch nothing.
template <int Rows, int Bytes>
class rows_to_store {
  public:
    /// The rows that a tile over k stores. None are prefetched if it adds to them, since they have been loaded.
    template <class T>
    HALFTONE_INLINE rows_to_store(T* first, extent stride, extent k, const float* adds_to)
        : next_(reinterpret_cast<const std::byte*>(first)),
          stride_(stride * static_cast<extent>(sizeof(T))),
          left_(2 * k < Rows * lookahead_depth || adds_to == static_cast<const void*>(first) ? 0 : Rows),
          share_(k < Rows * lookahead_depth ? 2 : 1) {}

    /// Once every lookahead_depth of k.
    HALFTONE_INLINE void prefetch() {
        if (left_ <= 0) return;
        left_ -= share_;
        for (int i = 0; i < share_; ++i, next_ += stride_) {
            for (extent at = 0; at < Bytes; at += strided_lines::line) __builtin_prefetch(next_ + at, 1);
            __builtin_prefetch(next_ + Bytes - 1, 1);
        }
    }

  private:
    const std::byte* next_;
    extent stride_;
    int left_, share_;
};

/// Up to four sets of lines, prefetched in equal shares.
class lookahead {
  public:
    /// `prefetches`: how often prefetch() will be called. A fifth set of lines is left out.
    void add(const strided_lines& lines, extent prefetches) {
        if (count_ < capacity) all_[count_++] = {lines, ceil_div(lines.count(), prefetches)};
    }
    /// Drops all sets but the first `count`.
    void keep(int count) { count_ = count_ < count ? count_ : count; }

    HALFTONE_INLINE void prefetch() {
        for (int i = 0; i < count_; ++i) all_[i].lines.prefetch(all_[i].share);
    }

  private:
    static constexpr int capacity = 4;
    struct shared_lines {
        strided_lines lines;
        extent share = 0;
    };

    shared_lines all_[capacity];
    int count_ = 0;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
