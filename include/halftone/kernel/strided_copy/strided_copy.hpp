// SPDX-License-Identifier: MIT
/// \file
/// Copies between views with any strides, which make a transposed, sliced or expanded tensor contiguous.
///
///     ht::contiguous(device, ht::permute(x, ht::axes<0, 2, 1>), y);           // y as torch's x.permute(0, 2, 1).contiguous()
///
/// Numeric contract: bytes are copied.
#pragma once

#include <algorithm>
#include <utility>

#include <halftone/kernel/common/strided/axes.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/overlap.hpp>
#include <halftone/tensor/rearrange.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// run(device, from, to): to = from, element by element. Both views have the same shape and any strides. No two elements of
/// `to` may share an address, and the views must not overlap. Up to 8 axes. Throws shape_error.
template <class Device>
struct strided_copy;

/// A type-erased copy: axes are merged, and sorted so that `to` is written in memory order. Strides are in elements.
struct strided_copy_job {
    const std::byte* from;
    std::byte* to;
    extent element_bytes;
    int axes;
    axis_values extents, from_strides, to_strides;

    extent size() const {
        extent n = 1;
        for (int axis = 0; axis < axes; ++axis) n *= extents.of[axis];
        return n;
    }
    int last() const { return axes - 1; }
    /// The axis along which `from` is contiguous, if `to` is contiguous along a different axis; otherwise -1.
    int transposed_axis() const {
        if (to_strides.of[last()] != 1 || from_strides.of[last()] == 1) return -1;
        for (int axis = 0; axis < last(); ++axis) {
            if (from_strides.of[axis] == 1) return axis;
        }
        return -1;
    }
};

inline extent stride_magnitude(extent stride) { return stride < 0 ? -stride : stride; }

/// The job for views that have been checked.
template <class T, int Rank>
strided_copy_job strided_copy_job_of(const view<const T, Rank>& from, const view<T, Rank>& to) {
    strided_copy_job job{reinterpret_cast<const std::byte*>(from.data()),
                         reinterpret_cast<std::byte*>(to.data()),
                         static_cast<extent>(sizeof(T)),
                         Rank,
                         axis_values_of(to.shape()),
                         axis_values_of(from.strides()),
                         axis_values_of(to.strides())};
    // Sorts axes by the strides of `to`, the largest first; axes of extent 1 are dropped.
    for (int axis = 1; axis < Rank; ++axis) {
        for (int i = axis; i > 0 && stride_magnitude(job.to_strides.of[i - 1]) < stride_magnitude(job.to_strides.of[i]);
             --i) {
            for (axis_values* each : {&job.extents, &job.from_strides, &job.to_strides})
                std::swap(each->of[i - 1], each->of[i]);
        }
    }
    axis_values strides[] = {job.from_strides, job.to_strides};
    job.axes = merge_axes(Rank, job.extents, strides, 2);
    job.from_strides = strides[0], job.to_strides = strides[1];
    return job;
}

/// The job with axis `other`, along which `from` is contiguous, moved to the place before the last axis.
inline strided_copy_job with_axis_before_last(strided_copy_job job, int other) {
    for (axis_values* each : {&job.extents, &job.from_strides, &job.to_strides}) {
        for (int axis = other; axis + 1 < job.last(); ++axis) std::swap(each->of[axis], each->of[axis + 1]);
    }
    return job;
}

template <class From, class T, int Rank>
void check_strided_copy(const view<From, Rank>& from, const view<T, Rank>& to) {
    static_assert(
        std::is_same_v<const From, const T> && !std::is_const_v<T>,
        "halftone: contiguous copies elements of one type into a view that can be written to; convert changes types");
    if (!(from.shape() == to.shape()))
        fail<shape_error>("contiguous: the result is ", to.shape(), "; expected ", from.shape());
    detail::expect_elements_once("contiguous", "the result", to);
}

}  // namespace kernel

/// y = x, a copy: x is a view with any strides, as ht::permute, ht::slice, ht::expand and ht::flip return. y has the
/// same shape and type; it need not be contiguous, but no two of its elements may share an address, and it does not
/// overlap x unless it is the same view. Throws shape_error. Source: torch.Tensor.contiguous.
template <class Device, class X, class Y>
    requires(detail::kernel_device<Device>&& detail::viewables<X, Y>)
void contiguous(Device& device, const X& x, const Y& y) {
    detail::expect_apart_or_same(device, "contiguous", "x", x, "y", y);
    kernel::strided_copy<Device>::run(device, as_view(x), as_view(y));
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
