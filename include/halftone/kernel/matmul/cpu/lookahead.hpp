// SPDX-License-Identifier: MIT
/// \file
/// Memory that is asked for while a product runs: the source of panels to come, the places of results.
///
/// Processors drop what is asked for all at once, and what is asked for between two tiles delays the second. So tiles
/// ask for a line or two every lookahead_depth of k, beside their multiplications.
#pragma once

#include <cstddef>
#include <cstdint>

#include <halftone/config.hpp>
#include <halftone/tensor/shape.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled has what follows and is no template
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

inline constexpr extent lookahead_depth = 16;

/// What a tile asks for: nothing, the panel of b that lies behind its own, or what a lookahead says.
enum class tile_prefetch { nothing, next_panel, lookahead };

/// Runs of bytes, so many bytes apart, of which lines are asked for: the first one of all runs, then the second ones.
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
    /// Where in its line an address lies.
    static extent begin_of(const void* p) { return static_cast<extent>(reinterpret_cast<std::uintptr_t>(p) % line); }
    /// Where a run that may begin anywhere has the most lines.
    static extent most_begin(extent bytes) { return bytes < line ? bytes - 1 : line - 1; }
    static extent lines_of(extent bytes, extent begin) { return bytes < 1 ? 0 : (begin + bytes + line - 1) / line; }

    const std::byte *first_ = nullptr, *next_ = nullptr;
    extent stride_ = 0, runs_ = 0, left_ = 0, count_ = 0;
};

/// Rows of results that a tile is to store, so many bytes each, asked for one or two at a time while it is multiplied:
/// stores that all miss at once take the places where the next tile's loads wait for theirs. Shallow tiles are over before
/// they arrive.
template <int Rows, int Bytes>
class rows_to_store {
  public:
    /// By a tile of so much k. What it adds to is near already.
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

/// Lines that are asked for in equal shares.
class lookahead {
  public:
    /// `asks`: how often they will be. More than there is room for are left out.
    void add(const strided_lines& lines, extent prefetches) {
        if (count_ < most) all_[count_++] = {lines, (lines.count() + prefetches - 1) / prefetches};
    }
    /// Drops all but the first `count`.
    void keep(int count) { count_ = count_ < count ? count_ : count; }

    HALFTONE_INLINE void prefetch() {
        for (int i = 0; i < count_; ++i) all_[i].lines.prefetch(all_[i].share);
    }

  private:
    static constexpr int most = 4;
    struct shared_lines {
        strided_lines lines;
        extent share = 0;
    };

    shared_lines all_[most];
    int count_ = 0;
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
