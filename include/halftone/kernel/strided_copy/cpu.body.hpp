// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in cpu.hpp that are no templates.
#pragma once

#include <halftone/kernel/strided_copy/cpu.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

HALFTONE_OUT_OF_LINE strided_place::strided_place(const strided_copy_job& job, int axes, extent first) : job_(&job), axes_(axes) {
    for (int axis = axes - 1; axis >= 0; --axis) {
        index_[axis] = first % job.extents.of[axis];
        first /= job.extents.of[axis];
        from += index_[axis] * job.from_strides.of[axis];
        to += index_[axis] * job.to_strides.of[axis];
    }
}

HALFTONE_OUT_OF_LINE void strided_place::advance() {
    for (int axis = axes_ - 1; axis >= 0; --axis) {
        from += job_->from_strides.of[axis];
        to += job_->to_strides.of[axis];
        if (++index_[axis] < job_->extents.of[axis]) return;
        from -= index_[axis] * job_->from_strides.of[axis];
        to -= index_[axis] * job_->to_strides.of[axis];
        index_[axis] = 0;
    }
}

HALFTONE_OUT_OF_LINE void run_strided_copy_of_bytes(cpu& device, const strided_copy_job& job) {
    if (job.size() == 0) return;
    switch (job.element_bytes) {
        case 1:
            return run_strided_copy<std::uint8_t>(device, job);
        case 2:
            return run_strided_copy<std::uint16_t>(device, job);
        case 4:
            return run_strided_copy<std::uint32_t>(device, job);
        default:
            return run_strided_copy<std::uint64_t>(device, job);
    }
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
