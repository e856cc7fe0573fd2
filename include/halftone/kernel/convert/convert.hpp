// SPDX-License-Identifier: MIT
/// \file
/// Conversion of arrays between number types, at the speed of memory, with an optional factor.
///
///     ht::convert(device, master, copy);
///     ht::convert(device, gradients, unscaled, 1 / scale);
///     ht::convert_saturated(device, weights, eighths, 448 / largest);              // into a view<float8_e4m3, 2>
///
/// Numeric contract: factor times element in float, rounded once to nearest even, by the conversion of the element type
/// (a NaN stays a NaN).
#pragma once

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/overlap.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// run(device, from, to, factor = 1): `from` and `to` have one shape of any rank, and are contiguous, or of rank 2 with
/// any leading dimension. They may be the same memory if their types agree. Throws shape_error. saturate(device, from,
/// to, factor = 1): the same, but values beyond the largest number of `to` become that number.
template <class Device>
struct convert;

}  // namespace kernel

/// to = factor from, rounded once to nearest even to the element type of `to`. Both have one shape and are contiguous,
/// or of rank 2 with any leading dimension; they may be the same memory if their types agree. It takes no policy, since
/// the element types determine everything. Throws shape_error.
template <class Device, class From, class To>
    requires(detail::kernel_device<Device> && detail::viewables<From, To>)
void convert(Device& device, const From& from, const To& to, float factor = 1) {
    detail::expect_apart_or_same(device, "convert", "from", from, "to", to);
    kernel::convert<Device>::run(device, as_view(from), as_view(to), factor);
}
/// to = factor from, rounded once to nearest even to the element type of `to`; values beyond the largest number of `to`
/// become that number.
template <class Device, class From, class To>
    requires(detail::kernel_device<Device> && detail::viewables<From, To>)
void convert_saturated(Device& device, const From& from, const To& to, float factor = 1) {
    detail::expect_apart_or_same(device, "convert_saturated", "from", from, "to", to);
    kernel::convert<Device>::saturate(device, as_view(from), as_view(to), factor);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
