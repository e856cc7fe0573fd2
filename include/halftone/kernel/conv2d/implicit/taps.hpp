// SPDX-License-Identifier: MIT
/// \file
/// Sums over the taps of a window, which the forward pass and the input's gradient have in common. Along each axis, the sum is
/// over taps t of weight[t] source[i * stride + begin[t]], where the source is 0 outside of its size.
///
///     tap_axis::of_forward(window.down)     // result i is the sum over all taps; the source is the image
///     tap_axis::of_input(window.down)       // result i * classes + c is the sum over the taps of class c, of which there are as
///                                           // many as the window's stride; the source is the result's gradient, the stride 1
///
/// So that elements that a tap sees at consecutive i are adjacent in memory, a source is split into `phases`: phase f holds the
/// elements first + f, first + f + stride, ... A tap sees element i + shift of one phase.
#pragma once

#include <algorithm>
#include <cstdint>

#include <halftone/kernel/conv2d/lowering/problem.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {
namespace implicit_cpu {

/// The largest number of taps of a window: those of a channel fit into one piece of depth.
inline constexpr extent most_taps = 256;
/// The largest stride of an implicit convolution: its classes of positions along an axis.
inline constexpr extent most_classes = 16;

struct tap_axis {
    extent size, positions, stride;  ///< of the source; the number of i; source elements from i to i + 1
    extent results, classes;         ///< the number of results; of i = positions - 1, some classes may have none
    extent taps, first, phases, most_shift;
    std::int32_t begin_of_class[most_classes + 1];
    std::int32_t number[most_taps],
        begin[most_taps];  ///< of each tap, class by class: its place in the window; see above

    static tap_axis of_forward(const window_axis& of) {
        tap_axis a;
        a.size = of.size;
        a.positions = a.results = of.positions;
        a.stride = of.stride;
        a.classes = 1;
        for (extent t = 0; t < of.taps; ++t) a.add(0, t, t * of.dilation - of.padding);
        a.complete();
        return a;
    }
    static tap_axis of_input(const window_axis& of) {
        tap_axis a;
        a.size = of.positions;
        a.positions = detail::ceil_div(of.size, of.stride);
        a.results = of.size;
        a.stride = 1;
        a.classes = of.stride;
        for (extent c = 0; c < of.stride; ++c) {
            for (extent t = of.taps - 1; t >= 0; --t) {
                const extent begin = c + of.padding - t * of.dilation;
                if (begin % of.stride == 0) a.add(c, t, begin / of.stride);
            }
        }
        a.complete();
        return a;
    }
    extent phase(extent tap) const { return (begin[tap] - first) % stride; }
    extent shift(extent tap) const { return (begin[tap] - first) / stride; }
    extent taps_of(extent c) const { return begin_of_class[c + 1] - begin_of_class[c]; }
    extent most_taps_of_class() const {
        extent most = 0;
        for (extent c = 0; c < classes; ++c) most = std::max(most, taps_of(c));
        return most;
    }

  private:
    tap_axis() : taps(0), first(0), phases(1), most_shift(0), begin_of_class{} {}
    void add(extent of_class, extent tap, extent at) {
        number[taps] = static_cast<std::int32_t>(tap);
        begin[taps++] = static_cast<std::int32_t>(at);
        begin_of_class[of_class + 1] = static_cast<std::int32_t>(taps);
    }
    void complete() {
        for (extent c = 0; c < classes; ++c) begin_of_class[c + 1] = std::max(begin_of_class[c], begin_of_class[c + 1]);
        if (taps > 0) first = *std::min_element(begin, begin + taps);
        for (extent t = 0; t < taps; ++t) {
            phases = std::max(phases, phase(t) + 1);
            most_shift = std::max(most_shift, shift(t));
        }
    }
};

/// Some consecutive positions of one image.
struct rows_of_image {
    extent image, first, rows;  ///< rows of positions
    extent base;                ///< the row of a plane in which the first one's source begins
    extent position, count;     ///< the first one, and the number of them
};

/// A sum over both axes, of channels of a group into its outputs.
struct tap_sum {
    extent images, groups, channels, outputs;
    tap_axis down, across;

    /// The forward pass: of a group's channels of x into its outputs. The weight's gradient sees x through the same taps.
    static tap_sum of_forward(const detail::conv2d_problem& p) {
        return {p.images, p.groups, p.group_channels(), p.group_outputs(), tap_axis::of_forward(p.window.down),
                tap_axis::of_forward(p.window.across)};
    }
    /// The gradient of the input: of dy, with channels and outputs exchanged.
    static tap_sum of_input(const detail::conv2d_problem& p) {
        return {p.images, p.groups, p.group_outputs(), p.group_channels(), tap_axis::of_input(p.window.down),
                tap_axis::of_input(p.window.across)};
    }
    extent taps() const { return down.taps * across.taps; }
    extent classes() const { return down.classes * across.classes; }
    extent taps_of(extent c) const { return down.taps_of(c / across.classes) * across.taps_of(c % across.classes); }
    extent most_taps_of_class() const { return down.most_taps_of_class() * across.most_taps_of_class(); }
    extent positions() const { return down.positions * across.positions; }
    extent phases() const { return down.phases * across.phases; }
    /// A plane holds what one phase of a channel has under the rows of some positions.
    extent plane_width() const { return across.positions + across.most_shift; }
    /// The number of elements of a plane for `count` positions, at most.
    extent most_plane_size(extent count) const {
        const extent wide = across.positions, rows = (count + 2 * wide - 2) / wide,
                     all = std::min(images, (count + 2 * positions() - 2) / positions());
        return (std::min(rows + all - 1, rows * all) + all * down.most_shift) * plane_width();
    }
    /// Calls run(class, down tap, across tap) for all taps, class by class.
    template <class Run>
    void for_each_tap(const Run& run) const {
        for (extent a = 0; a < down.classes; ++a) {
            for (extent b = 0; b < across.classes; ++b) {
                for (extent k = down.begin_of_class[a]; k < down.begin_of_class[a + 1]; ++k)
                    for (extent l = across.begin_of_class[b]; l < across.begin_of_class[b + 1]; ++l) run(k, l);
            }
        }
    }
    /// Calls run(rows_of_image) for positions [first, first + count) of all images, numbered one after the other.
    template <class Run>
    void for_each_image(extent first, extent count, const Run& run) const {
        extent base = 0;
        for (extent at = first, end = first + count; at < end;) {
            const extent image = at / positions(), position = at % positions(),
                         some = std::min(positions() - position, end - at), row = position / across.positions,
                         rows = (position + some - 1) / across.positions - row + 1;
            run(rows_of_image{image, row, rows, base, position, some});
            base += rows + down.most_shift;
            at += some;
        }
    }
};

/// Whether a window is supported.
inline bool is_supported(const sliding_window& w) {
    return w.down.taps <= most_taps && w.across.taps <= most_taps && w.taps() <= most_taps &&
           w.down.stride <= most_classes && w.across.stride <= most_classes && w.fits_32_bits();
}

}  // namespace implicit_cpu
}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
