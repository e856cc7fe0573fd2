// SPDX-License-Identifier: MIT
/// \file
/// Sums over the taps of a window, which the forward pass and the input's gradient have in common: along each axis, result i
/// is the sum over taps t of weight[t] source[i * stride + begin(t)], and the source is 0 outside of its size.
///
///     tap_axis::of_forward(window.down)             // results: positions; source: the image
///     tap_axis::of_input(window.down, remainder)    // results: rows of the image that leave this remainder when divided by the
///                                                   // stride; source: positions, whose stride is 1
///
/// So that elements that a tap sees at consecutive results are adjacent in memory, a source is split into `phases`: phase f
/// holds the elements first + f, first + f + stride, ... A tap sees element i + shift of one phase.
#pragma once

#include <algorithm>
#include <cstdint>

#include <halftone/kernel/conv2d/lowering/problem.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {
namespace implicit_cpu {

/// The largest number of taps of a window: those of a channel fit into one piece of depth.
inline constexpr extent most_taps = 256;

struct tap_axis {
    extent size, positions, stride;                        ///< of the source; the number of results; source elements between two
    extent result_first = 0, result_step = 1;              ///< where results are in memory
    extent taps = 0;                                       ///< those that see any result
    extent first = 0, phases = 1, most_shift = 0;
    std::int32_t number[most_taps]{}, begin[most_taps]{};    ///< of each tap: its place in the window; see above

    static tap_axis of_forward(const window_axis& of) {
        tap_axis a{of.size, of.positions, of.stride};
        for (extent t = 0; t < of.taps; ++t) a.add(t, t * of.dilation - of.padding);
        return a.with_phases();
    }
    static tap_axis of_input(const window_axis& of, extent remainder) {
        tap_axis a{of.positions, (of.size - remainder + of.stride - 1) / of.stride, 1, remainder, of.stride};
        for (extent t = of.taps - 1; t >= 0; --t) {
            const extent begin = remainder + of.padding - t * of.dilation;
            if (begin % of.stride == 0) a.add(t, begin / of.stride);
        }
        return a.with_phases();
    }
    extent phase(extent tap) const { return (begin[tap] - first) % stride; }
    extent shift(extent tap) const { return (begin[tap] - first) / stride; }

  private:
    void add(extent tap, extent at) {
        number[taps] = static_cast<std::int32_t>(tap);
        begin[taps++] = static_cast<std::int32_t>(at);
    }
    tap_axis with_phases() {
        if (taps > 0) first = *std::min_element(begin, begin + taps);
        for (extent t = 0; t < taps; ++t) {
            phases = std::max(phases, phase(t) + 1);
            most_shift = std::max(most_shift, shift(t));
        }
        return *this;
    }
};

/// Results [first, first + count) of all images, numbered one after the other, as rows of each image.
struct rows_of_image {
    extent image, first, rows;  ///< rows of results
    extent base;                ///< the row of a plane in which the first one's source begins
    extent position, count;     ///< the first result, and the number of them
};

/// A sum over both axes, of channels of a group into its outputs.
struct tap_sum {
    extent images, groups, channels, outputs;
    tap_axis down, across;

    extent taps() const { return down.taps * across.taps; }
    extent positions() const { return down.positions * across.positions; }
    extent phases() const { return down.phases * across.phases; }
    /// A plane holds what one phase of a channel has under the rows of some results.
    extent plane_width() const { return across.positions + across.most_shift; }
    /// The rows of a plane for `count` results, at most.
    extent most_plane_rows(extent count) const {
        const extent wide = across.positions, rows = (count + 2 * wide - 2) / wide,
                     all = std::min(images, (count + 2 * positions() - 2) / positions());
        return std::min(rows + all - 1, rows * all) + all * down.most_shift;
    }
    extent most_plane_size(extent count) const { return most_plane_rows(count) * plane_width(); }

    template <class Run>
    void for_each_image(extent first, extent count, const Run& run) const {
        extent base = 0;
        for (extent at = first, end = first + count; at < end;) {
            const extent image = at / positions(), position = at % positions(), some = std::min(positions() - position, end - at),
                         row = position / across.positions, rows = (position + some - 1) / across.positions - row + 1;
            run(rows_of_image{image, row, rows, base, position, some});
            base += rows + down.most_shift;
            at += some;
        }
    }
};

/// Whether a window has no more taps than are supported.
inline bool has_few_taps(const sliding_window& w) {
    return w.down.taps <= most_taps && w.across.taps <= most_taps && w.taps() <= most_taps && w.fits_32_bits();
}

}  // namespace implicit_cpu
}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
