// SPDX-License-Identifier: MIT
/// \file
/// The rows of a result as lines on the CPU: runs of consecutive rows whose places in the index and in the table are one
/// step apart, so that nothing is divided for a row; and the check of their indices.
///
///     for_each_line(layout, begin, count, [&](const gather_line& line) { ... });
#pragma once

#include <atomic>
#include <cstdint>

#include <halftone/exec/cpu/body_names.hpp>
#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/gather/gather.hpp>

#define HALFTONE_BODY <halftone/kernel/gather/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The axis that lines are along: the last one that enumerates rows and is longer than 1.
inline int line_axis(const gather_layout& layout) {
    int a = layout.rank - 1;
    while (a > 0 && layout.places[a] == 1) --a;
    return a;
}

/// Consecutive rows of a result along line_axis.
struct gather_line {
    extent first, count;           ///< rows of the result
    extent place;                  ///< of the first one, along the axis
    extent index, index_step = 0;  ///< place of the first row's index, and the distance to the next row's: 0 or 1
    extent row,
        row_step = 0;  ///< the table's row for the first row if its index is 0, and the distance to the next row's

    /// The table's row for row i of the line, whose index is `chosen`.
    extent row_of(extent i, extent chosen, extent along) const { return row + i * row_step + chosen * along; }
};

/// Calls f(line) for the lines of the rows [begin, begin + count).
template <class F>
void for_each_line(const gather_layout& layout, extent begin, extent count, const F& f) {
    const int last = line_axis(layout);
    const extent end = begin + count;
    extent place[gather_layout::most_rank], rest = begin;
    for (int a = last; a >= 0; --a) place[a] = rest % layout.places[a], rest /= layout.places[a];
    while (begin < end) {
        const extent left = layout.places[last] - place[last];
        gather_line line{begin,
                         left < end - begin ? left : end - begin,
                         place[last],
                         0,
                         layout.index_strides[last],
                         0,
                         layout.row_strides[last]};
        for (int a = 0; a <= last; ++a) {
            line.index += place[a] * layout.index_strides[a];
            line.row += place[a] * layout.row_strides[a];
        }
        f(line);
        begin += line.count, place[last] += line.count;
        for (int a = last; a > 0 && place[a] == layout.places[a]; --a) place[a] = 0, ++place[a - 1];
    }
}

/// Finds the first index outside the axis, from any number of threads.
class index_check {
  public:
    index_check(cpu& device, const gather_layout& layout, const const_view<std::int32_t, 1>& index)
        : are_inside_(device.select(HALFTONE_EACH_SET(are_inside))),
          index_(index.data()),
          choices_(layout.choices),
          first_(index.size()) {}

    /// Whether all indices of the line are inside.
    bool takes(const gather_line& line) {
        const std::int32_t* const some = index_ + line.index;
        const extent count = line.index_step == 0 ? 1 : line.count;
        // A short line is checked without a call.
        if (count >= 16 && are_inside_(some, count, choices_)) return true;
        extent i = 0;
        while (i < count && some[i] >= 0 && some[i] < choices_) ++i;
        if (i == count) return true;
        extent first = first_.load(std::memory_order_relaxed);
        while (line.index + i < first &&
               !first_.compare_exchange_weak(first, line.index + i, std::memory_order_relaxed)) {
        }
        return false;
    }
    /// Throws argument_error if an index was outside.
    void expect_all(const char* operation, const const_view<std::int32_t, 1>& index) const {
        const extent i = first_.load(std::memory_order_relaxed);
        if (i < index.size())
            fail<argument_error>(operation, ": index ", i, " is ", index(i), "; expected 0 to ", choices_ - 1);
    }

  private:
    bool (*are_inside_)(const std::int32_t* index, extent count, extent choices);
    const std::int32_t* index_;
    extent choices_;
    std::atomic<extent> first_;
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
