// SPDX-License-Identifier: MIT
/// \file
/// The read pass over gradients: is every one finite, and what is the norm of all of them?
///
///     ht::gradient_norm(device, &record, of_some, of_others);     // record.norm, record.found_inf; or slab by slab:
///     kernel::begin_pass(record);
///     kernel::gradient_norm<cpu>::add(device, gradients_of_some, &record, &found_inf);     // each slab in turn
///     kernel::gradient_norm<cpu>::add(device, gradients_of_others, &record, &found_inf);
///     kernel::end_pass(record);                                  // record.norm, record.found_inf
///
/// Numeric contract: finiteness is told by the bits of the gradients as they lie in memory, before they are unscaled,
/// so that -ffast-math does not touch it; gradients whose norm leaves float's range count as infinite. (An optimizer
/// takes less than that: is_beyond() in kernel/common/update/records.hpp.) The norm is that
/// of the values with the record's factors applied; squares are added in float within a chunk of 16,384 elements (in
/// double where a square could overflow or vanish), chunks in double by a tree fixed by the length alone. 4 bytes a
/// parameter with fp32 gradients, read once.
#pragma once

#include <halftone/kernel/common/update/records.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Of one chunk of the gradients, on the CPU.
struct chunk_squares {
    float squares, largest;  // the largest magnitude tells whether a square could have left float's range
    std::int32_t found_inf;
};

}  // namespace detail

namespace kernel {

/// Of a sparse gradient only the first *count rows are there: what lies behind them is not looked at.
struct row_limit {
    const std::int32_t* count = nullptr;  ///< in the device's memory; none: no limit
    extent width = 0;

    /// How many of `all` elements are there.
    HALFTONE_HD extent elements(extent all) const { return count == nullptr ? all : *count * width; }
};

/// add(device, gradients, record, found_inf): adds the squares to record->squares; raises record->found_inf and
/// *found_inf to found_infinity or found_nan where a gradient is not finite. Both lie in the device's memory. Throws
/// shape_error for gradients in pieces. add(device, gradients, record, found_inf, row_limit) looks at the rows that are
/// there. On the CPU there is add(device, squares, record, found_inf), too: for gradients whose squares, all finite, are
/// known already.
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

/// The Euclidean norm of all these gradients together, with the record's factors applied, to record->norm, and whether one of
/// them is not finite to record->found_inf: kernel::found_nothing, found_infinity, or found_nan. The record lies in the
/// device's memory and was made as kernel::gradient_record{}; ht::adamw_step and ht::sgd_step take its factors. Gradients
/// are contiguous, of any rank. On a device it waits for nothing. It takes no policy: the element types say everything.
/// Throws shape_error.
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
