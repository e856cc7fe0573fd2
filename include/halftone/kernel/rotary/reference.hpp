// SPDX-License-Identifier: MIT
/// \file
/// The definition of rotary position embedding.
///
///     y[a] = x[a] cos - x[b] sin,   y[b] = x[b] cos + x[a] sin,   for the pair (a, b) and the angle of its token's position
///
///     reference::rotary(x, table, positions, y, options);
#pragma once

#include <halftone/kernel/rotary/rotary.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// y = x, with the pairs of the first options.heads heads rotated by the table's cosines and sines, in double.
template <class X, class Y>
void rotary(const view<X, 4>& x, const const_view<float, 2>& table, const const_view<std::int32_t, 2>& positions,
            const view<Y, 4>& y, const rotary_options& options) {
    const extent pairs = table.extent_of(1) / 2, heads = options.heads < 0 ? x.extent_of(2) : options.heads;
    const bool halves = options.layout == rotary_layout::half_split;
    for (extent b = 0; b < x.extent_of(0); ++b) {
        for (extent t = 0; t < x.extent_of(1); ++t) {
            const extent position = positions.data() == nullptr ? t : extent{positions(b, t)};
            for (extent h = 0; h < x.extent_of(2); ++h) {
                for (extent i = 0; i < x.extent_of(3); ++i) y(b, t, h, i) = static_cast<Y>(static_cast<double>(x(b, t, h, i)));
                for (extent i = 0; i < pairs && h < heads; ++i) {
                    const extent first = halves ? i : 2 * i, second = halves ? i + pairs : 2 * i + 1;
                    const double cosine = static_cast<double>(table(position, i));
                    const double sine = static_cast<double>(table(position, pairs + i)) * (options.inverse ? -1 : 1);
                    const double p = static_cast<double>(x(b, t, h, first)), q = static_cast<double>(x(b, t, h, second));
                    y(b, t, h, first) = static_cast<Y>(p * cosine - q * sine);
                    y(b, t, h, second) = static_cast<Y>(q * cosine + p * sine);
                }
            }
        }
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
