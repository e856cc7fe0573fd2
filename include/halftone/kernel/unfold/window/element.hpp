// SPDX-License-Identifier: MIT
/// \file
/// unfold and fold with one thread per element (common/fp64/each.hpp): for GPUs, and for doubles on the CPU.
#pragma once

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/unfold/unfold.hpp>
#include <halftone/number/bits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Computes an element of the matrix. Elements are copied as words of their size.
template <class Word>
struct unfold_element {
    simt::global_span<const Word> x;
    simt::global_span<Word> y;
    sliding_window window;
    shape<4> strides;  // of x
    extent begin;      // the offset of its first element in the span
    extent first_row, rows, columns;

    template <class T>
    explicit unfold_element(const unfold_arguments<T>& a)
        : x{reinterpret_cast<const Word*>(a.x.data()) - a.x.elements_before(), a.x.bounding_size()},
          y{reinterpret_cast<Word*>(a.y.data()), a.y.size()},
          window(a.window),
          strides(a.x.strides()),
          begin(a.x.elements_before()),
          first_row(a.first_row),
          rows(a.rows),
          columns(a.y.extent_of(1)) {}

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const extent row = i / columns, column = i - row * columns;
        const extent channel = row / window.taps(), tap = row - channel * window.taps();
        const extent down_tap = tap / window.across.taps, across_tap = tap - down_tap * window.across.taps;
        const extent position_row = column / window.across.positions,
                     position = column - position_row * window.across.positions;
        const extent image = position_row / rows;
        const extent down = window.down.seen(first_row + position_row - image * rows, down_tap);
        const extent across = window.across.seen(position, across_tap);
        Word value{};
        if (down >= 0 && down < window.down.size && across >= 0 && across < window.across.size) {
            value = thread.load(
                x, begin + image * strides[0] + channel * strides[1] + down * strides[2] + across * strides[3]);
        }
        thread.store(y, i, value);
    }
};

/// One element of the images. Int: extent, or std::int32_t if the window and both sizes fit, which is faster on GPUs.
template <class T, class X, class Int>
struct fold_element {
    simt::global_span<const T> y;
    simt::global_span<X> x;
    sliding_window window;
    shape<5> strides;  // of x
    Int groups, channels, columns;
    write_mode mode;

    explicit fold_element(const fold_arguments<T, X>& a)
        : y(simt::span_of(a.y)),
          x(simt::bounding_span_of(a.x)),
          window(a.window),
          strides(a.x.strides()),
          groups(static_cast<Int>(a.x.extent_of(1))),
          channels(static_cast<Int>(a.x.extent_of(2))),
          columns(static_cast<Int>(a.y.extent_of(2))),
          mode(a.mode) {}

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const Int width = static_cast<Int>(window.across.size), height = static_cast<Int>(window.down.size);
        const Int line = static_cast<Int>(i) / width, across = static_cast<Int>(i) - line * width;
        const Int plane = line / height, down = line - plane * height;
        const Int image = plane / (groups * channels), of_group = plane - image * (groups * channels);
        statistic<T, X> sum = sum_of_taps(thread, of_group, image, down, across);
        const Int group = of_group / channels, channel = of_group - group * channels;
        const extent at = image * strides[0] + group * strides[1] + channel * strides[2] + down * strides[3] +
                          across * strides[4];
        if (mode == write_mode::add) sum = static_cast<statistic<T, X>>(thread.load(x, at)) + sum;
        thread.store(x, at, static_cast<X>(sum));
    }

  private:
    /// The sum over the taps that see the element, in their order.
    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD HALFTONE_INLINE statistic<T, X> sum_of_taps(Thread thread, Int of_group, Int image, Int down,
                                                            Int across) const {
        const Int taps = static_cast<Int>(window.across.taps), positions = static_cast<Int>(window.across.positions);
        const Int first_position = image * static_cast<Int>(window.positions());
        statistic<T, X> sum = 0;
        for (Int k = 0; k < static_cast<Int>(window.down.taps); ++k) {
            const Int position_row = window.down.position_of(down, k);
            if (position_row < 0) continue;
            for (Int l = 0; l < taps; ++l) {
                const Int position = window.across.position_of(across, l);
                if (position < 0) continue;
                const Int row = of_group * static_cast<Int>(window.taps()) + k * taps + l;
                sum += thread.load(y, row * columns + first_position + position_row * positions + position);
            }
        }
        return sum;
    }
};

/// Computes the whole matrix with one thread per element, on any device.
template <class Device, class T>
void unfold_by_elements(Device& device, const unfold_arguments<T>& a) {
    if (a.y.size() == 0) return;
    fp64::for_each(device, a.y.size(), 2, unfold_element<detail::unsigned_of_size<sizeof(T)>>(a));
}
/// Computes the images with one thread per element, on any device.
template <class Int, class Device, class T, class X>
void fold_by_elements(Device& device, const fold_arguments<T, X>& a) {
    if (a.x.size() == 0) return;
    fp64::for_each(device, a.x.size(), a.window.taps(), fold_element<T, X, Int>(a));
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
