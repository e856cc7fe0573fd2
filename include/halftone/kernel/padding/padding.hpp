// SPDX-License-Identifier: MIT
/// \file
/// Sets the rows of padding tokens to zero, for the gradient of an embedding with a padding index.
///
///     kernel::clear_padding(device, tokens, padding, dy, out);          // out[r] = 0 where tokens[r] is padding, else dy[r]
#pragma once

#include <cstdint>

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/number/float8.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <class Y>
struct padding_element {
    simt::global_span<const std::int32_t> tokens;
    simt::global_span<const Y> dy;
    simt::global_span<Y> out;
    extent width;
    std::int32_t padding;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const bool is_padding = thread.load(tokens, i / width) == padding;
        thread.store(out, i, is_padding ? Y(0.0f) : thread.load(dy, i));
    }
};

/// The elements of one row of a table, as a mask (kernel/one_hot): 1 in that row, else 0.
struct row_mask_element {
    simt::global_span<float8_e5m2> mask;
    extent first, width;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        thread.store(mask, i, float8_e5m2(i >= first && i < first + width ? 1.0f : 0.0f));
    }
};

/// tokens: (rows), dy and out: (rows, width), contiguous.
template <class Device, class Y>
void clear_padding(Device& device, const const_view<std::int32_t, 1>& tokens, std::int32_t padding,
                   const const_view<Y, 2>& dy, const view<Y, 2>& out) {
    if (out.size() == 0) return;
    fp64::for_each(device, out.size(), 2,
                   padding_element<Y>{simt::span_of(tokens), simt::span_of(dy), simt::span_of(out), out.extent_of(1), padding});
}
/// mask: (rows * width), of a table's elements.
template <class Device>
void mask_row(Device& device, extent row, extent width, const view<float8_e5m2, 1>& mask) {
    if (mask.size() != 0) fp64::for_each(device, mask.size(), 1, row_mask_element{simt::span_of(mask), row * width, width});
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
