// SPDX-License-Identifier: MIT
/// \file
/// One-hot rows of indices, and triangular matrices as masks.
///
///     ht::one_hot(device, index, y);                             // y[i][j] = 1 if index[i] == j, else 0
///     kernel::triangle_mask(device, columns, diagonal, mask);    // 1 on and below the diagonal, else 0
///
/// Both are exact, with one thread per element. They run on any device whose kernels are included.
#pragma once

#include <cstdint>

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/number/float8.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <class Y>
struct one_hot_element {
    simt::global_span<const std::int32_t> index;
    simt::global_span<Y> out;
    extent classes;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const std::int32_t chosen = thread.load(index, i / classes);
        const bool is_class = chosen >= 0 && chosen < classes;
        const float value = chosen == i % classes ? 1.0f : 0.0f;
        thread.store(out, i, static_cast<Y>(is_class ? value : std::numeric_limits<float>::quiet_NaN()));
    }
};

/// An element of a mask: a byte, which maps compare with 0.
using mask_element = float8_e5m2;

struct triangle_element {
    simt::global_span<mask_element> mask;
    extent rows, columns, diagonal;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const extent column = i % columns, row = i / columns % rows;
        thread.store(mask, i, mask_element(column - row <= diagonal ? 1.0f : 0.0f));
    }
};

/// mask: contiguous matrices of (rows, columns); 1 if column - row is at most `diagonal`, else 0.
template <class Device>
void triangle_mask(Device& device, extent rows, extent columns, extent diagonal, const view<mask_element, 1>& mask) {
    if (mask.size() != 0)
        fp64::for_each(device, mask.size(), 1, triangle_element{simt::span_of(mask), rows, columns, diagonal});
}

}  // namespace kernel

/// out[i][j] = 1 if index[i] == j, else 0. index: (rows) of std::int32_t, out: (rows, classes), of any number type;
/// contiguous. A row whose index is not a class becomes NaN. Throws shape_error.
template <class Device, class Y>
    requires(detail::kernel_device<Device> && detail::viewables<Y>)
void one_hot(Device& device, const const_view<std::int32_t, 1>& index, const Y& out) {
    const view<detail::element_in<Y>, 2> to = as_view(out);
    kernel::expect("one_hot", "index", index, index.shape());
    kernel::expect("one_hot", "out", to, {index.size(), to.extent_of(1)});
    if (to.size() == 0) return;
    kernel::fp64::for_each(device, to.size(), 1,
                           kernel::one_hot_element<detail::element_in<Y>>{simt::span_of(index), simt::span_of(to),
                                                                          to.extent_of(1)});
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
