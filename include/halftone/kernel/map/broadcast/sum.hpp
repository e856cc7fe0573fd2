// SPDX-License-Identifier: MIT
/// \file
/// The gradient of a broadcast tensor: the sums over the broadcast axes.
///
///     kernel::sum_over_broadcast(device, each, sums, write_mode::overwrite);      // each: (4, 3, 5), sums: (1, 3, 1)
///
/// Numeric contract: kernel::column_sum's, whose order of additions differs from axis_reduction's; hence the gradients of
/// broadcasts and of expand are not computed by the latter. If the summed axes are not the first ones, the elements are
/// copied into that order first.
#pragma once

#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/column_sum/column_sum.hpp>
#include <halftone/kernel/strided_copy/strided_copy.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// to = (or +=, by `mode`) the sum of x over the axes along which `to` has extent 1 and x another extent. Both are
/// contiguous.
template <class Device, class X, class T, int Rank>
void sum_over_broadcast(Device& device, const view<X, Rank>& x, const view<T, Rank>& to, write_mode mode) {
    using element = std::remove_const_t<X>;
    shape<Rank> s{}, strides{};
    extent rows = 1, width = 1;
    int at = 0;
    bool in_front = true;
    for (const bool summed : {true, false}) {
        for (int axis = 0; axis < Rank; ++axis) {
            const extent size = x.extent_of(axis);
            if ((size != to.extent_of(axis)) != summed) continue;
            s[at] = size, strides[at++] = x.stride_of(axis);
            (summed ? rows : width) *= size;
        }
    }
    bool kept_before = false;
    for (int axis = 0; axis < Rank; ++axis) {
        const bool summed = x.extent_of(axis) != to.extent_of(axis);
        in_front = in_front && !(summed && kept_before);
        kept_before = kept_before || (!summed && x.extent_of(axis) != 1);
    }
    const view<T, 1> sums(to.data(), {width});
    if (in_front) return column_sum<Device>::run(device, view<const element, 2>(x.data(), {rows, width}), sums, mode);
    const workspace::lease lease(device.scratch(), static_cast<std::size_t>(x.size()) * sizeof(element));
    auto* const together = lease.as<element>();
    strided_copy<Device>::run(device, view<const element, Rank>(x.data(), s, strides),
                              view<element, Rank>(together, s));
    column_sum<Device>::run(device, view<const element, 2>(together, {rows, width}), sums, mode);
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
