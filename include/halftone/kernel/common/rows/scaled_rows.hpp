// SPDX-License-Identifier: MIT
/// \file
/// Rows of floats that are scaled and added up, or multiplied and summed, for each instruction set.
#pragma once

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/common/rows/walk.hpp>

#define HALFTONE_BODY <halftone/kernel/common/rows/scaled_rows.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The functions of a device's instruction set. Strides are in elements.
struct float_rows {
    void (*add_scaled)(extent count, float by, const float* x, extent x_stride, float* y, extent y_stride);
    float (*multiply)(extent count, const float* x, extent x_stride, const float* y);

    static float_rows of(const cpu& device) {
        return {device.select(HALFTONE_EACH_SET(add_scaled_row<float>)),
                device.select(HALFTONE_EACH_SET(multiply_rows<float>))};
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
