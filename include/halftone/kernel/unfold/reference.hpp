// SPDX-License-Identifier: MIT
/// \file
/// The definition of unfold and of its transpose.
///
///     reference::unfold(window, x, y);         // y[(c, tap)][(n, position)] = x[n][c][the element under the tap], else 0
///     reference::fold(window, y, x);           // x[n][c][…] += y[(c, tap)][(n, position)]
#pragma once

#include <halftone/kernel/unfold/window/window.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// Calls f(row, column, image, channel, down, across) for each element of the matrix of all positions. (down, across) is
/// the position in the image that the element is read from, which may be in the padding.
template <class F>
void for_each_seen(const kernel::sliding_window& w, extent images, extent channels, const F& f) {
    for (extent c = 0; c < channels; ++c) {
        for (extent tap = 0; tap < w.taps(); ++tap) {
            for (extent n = 0; n < images; ++n) {
                for (extent position = 0; position < w.positions(); ++position) {
                    f(c * w.taps() + tap, n * w.positions() + position, n, c,
                      w.down.seen(position / w.across.positions, tap / w.across.taps),
                      w.across.seen(position % w.across.positions, tap % w.across.taps));
                }
            }
        }
    }
}
/// Whether a position is inside the image, and not in the padding.
inline bool is_inside(const kernel::sliding_window& w, extent down, extent across) {
    return down >= 0 && down < w.down.size && across >= 0 && across < w.across.size;
}

/// y = the elements of x at the taps of each position, 0 in the padding. x: (images, channels, height, width); y:
/// (channels * taps, images * positions).
template <class X, class T>
void unfold(const kernel::sliding_window& w, const view<X, 4>& x, const view<T, 2>& y) {
    for_each_seen(w, x.extent_of(0), x.extent_of(1), [&](extent row, extent column, extent n, extent c, extent i, extent j) {
        y(row, column) = is_inside(w, i, j) ? static_cast<T>(x(n, c, i, j)) : T(0.0f);
    });
}
/// Adds to each element of x all elements of y that unfold would read from it: the transpose of unfold.
template <class T, class X>
void fold(const kernel::sliding_window& w, const view<T, 2>& y, const view<X, 4>& x) {
    for_each_seen(w, x.extent_of(0), x.extent_of(1), [&](extent row, extent column, extent n, extent c, extent i, extent j) {
        if (is_inside(w, i, j)) x(n, c, i, j) += static_cast<X>(y(row, column));
    });
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
