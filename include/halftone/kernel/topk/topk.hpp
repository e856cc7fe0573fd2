// SPDX-License-Identifier: MIT
/// \file
/// The indices of each row's k largest numbers, the largest first.
///
///     ht::topk(device, logits, indices);                      // logits: (rows, width), indices: (rows, k)
///
/// Of equal numbers the one with the lower index is first, 0 and -0 are equal, and NaN is larger than any number, as in
/// PyTorch. The result is exact, and the same on every device.
///
/// A CPU reads a row once, with a heap of k numbers. On a GPU a block (for doubles a thread) reads the row k times, so
/// that it is fast for small k only.
#pragma once

#include <cstdint>

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/number/bits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// An integer for a float, such that integers have the same order as the floats.
HALFTONE_HD inline std::uint64_t order_of(float x) {
    if (x != x) return 0xffffffffu;
    const auto bits = bit_cast<std::uint32_t>(x == 0 ? 0.0f : x);
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
HALFTONE_HD inline std::uint64_t order_of(double x) {
    if (x != x) return ~std::uint64_t{0};
    const auto bits = bit_cast<std::uint64_t>(x == 0 ? 0.0 : x);
    return (bits >> 63) != 0 ? ~bits : bits | std::uint64_t{1} << 63;
}

/// A number of a row, as an integer with the same order, and its index.
struct ranked {
    std::uint64_t order;
    std::int32_t index;

    /// Whether this one comes before the other.
    HALFTONE_HD constexpr bool before(const ranked& other) const {
        return order != other.order ? order > other.order : index < other.index;
    }
};

/// Specialised for each device: run(device, x, indices).
template <class Device>
struct topk;

}  // namespace kernel

/// indices[i]: the indices of the k largest numbers of row i of x, the largest first. x: (rows, width) of any number
/// type, with any row stride; indices: (rows, k) of std::int32_t, contiguous. Throws shape_error, and argument_error if
/// k exceeds the width.
template <class Device, class X>
    requires(detail::kernel_device<Device> && detail::viewables<X>)
void topk(Device& device, const X& x, const view<std::int32_t, 2>& indices) {
    const const_view<detail::element_in<X>, 2> from = as_view(x);
    const extent k = indices.extent_of(1), width = from.extent_of(1);
    kernel::expect_rows("topk", "x", from, from.shape());
    kernel::expect("topk", "indices", indices, {from.extent_of(0), k});
    if (k > width) fail<argument_error>("topk: the ", k, " largest of ", width, " numbers; expected 0 to ", width);
    if (width > 2147483647) fail<argument_error>("topk: rows of ", width, " numbers; expected at most 2^31 - 1");
    if (indices.size() != 0) kernel::topk<Device>::run(device, from, indices);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
