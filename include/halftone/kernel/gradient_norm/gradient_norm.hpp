// SPDX-License-Identifier: MIT
/// \file
/// The read pass over gradients, which finds whether all are finite, and their norm.
///
///     ht::gradient_norm(device, &record, of_some, of_others);     // record.norm, record.found_inf; or slab by slab:
///     kernel::begin_pass(record);
///     kernel::gradient_norm<cpu>::add(device, gradients_of_some, &record, &found_inf);     // each slab in turn
///     kernel::gradient_norm<cpu>::add(device, gradients_of_others, &record, &found_inf);
///     kernel::end_pass(record);                                  // record.norm, record.found_inf
///
/// Numeric contract: finiteness is decided by the bits of the gradients as stored, before unscaling, so that
/// -ffast-math does not affect it; gradients whose norm exceeds float's range count as infinite. (Optimizers have a
/// lower limit: is_beyond() in kernel/common/update/records.hpp.) The norm is that of the values with the record's
/// factors applied. Squares are added in float within a chunk of 16,384 elements (in double if a square could overflow
/// or underflow), and chunks in double by a tree that depends on the length alone. Each gradient is read once: 4 bytes
/// a parameter in fp32.
#pragma once

#include <halftone/kernel/common/update/records.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// What the CPU finds in one chunk of gradients.
struct chunk_squares {
    float squares, largest;  // whether a square may have overflowed follows from the largest magnitude
    std::int32_t found_inf;
};

}  // namespace detail

namespace kernel {

/// A sparse gradient has only the first *count rows; memory after them is not read.
struct row_limit {
    const std::int32_t* count = nullptr;  ///< in the device's memory; nullptr: no limit
    extent width = 0;

    /// How many of `all` elements are valid.
    HALFTONE_HD extent elements(extent all) const { return count == nullptr ? all : *count * width; }
};

/// add(device, gradients, record, found_inf): adds the squares to record->squares; raises record->found_inf and
/// *found_inf to found_infinity or found_nan if a gradient is not finite. Both are in the device's memory. Throws
/// shape_error for gradients that are not contiguous. add(device, gradients, record, found_inf, row_limit) reads only
/// the valid rows. The CPU also has add(device, squares, record, found_inf), for finite gradients whose sum of squares
/// is known already.
template <class Device>
struct gradient_norm {
    static_assert(sizeof(Device) == 0,
                  "halftone: gradient_norm: the kernels of this device are not included: include <halftone/kernel.hpp> "
                  "for ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

}  // namespace kernel

namespace detail {

struct begin_norm {
    kernel::gradient_record* record;
    HALFTONE_HD void operator()() const { kernel::begin_pass(*record); }
};
struct end_norm {
    kernel::gradient_record* record;
    HALFTONE_HD void operator()() const { kernel::end_pass(*record); }
};

}  // namespace detail

/// Writes the Euclidean norm of all these gradients together, with the record's factors applied, to record->norm, and
/// whether one is not finite to record->found_inf: kernel::found_nothing, found_infinity or found_nan. The norm is NaN
/// if a gradient is, and infinity if one is infinite and none NaN. The record is in
/// the device's memory and begins as kernel::gradient_record{}; ht::adamw_step and ht::sgd_step apply its factors.
/// Gradients are contiguous, of any rank. The host does not wait. It takes no policy, since the element types determine
/// everything. Throws shape_error.
template <class Device, class... Gradients>
    requires(detail::kernel_device<Device> && detail::viewables<Gradients...>)
void gradient_norm(Device& device, kernel::gradient_record* record, const Gradients&... gradients) {
    device.run(detail::begin_norm{record});
    (kernel::gradient_norm<Device>::add(
         device, const_view<detail::element_in<Gradients>, 1>(flatten(as_view(gradients))), record, &record->found_inf),
     ...);
    device.run(detail::end_norm{record});
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
