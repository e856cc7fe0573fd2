// SPDX-License-Identifier: MIT
/// \file
/// Kernels in double on the CPU; each.hpp has their contract and an example.
#pragma once

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/common/rows/partition.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

template <>
struct each<cpu> {
    template <class Work>
    static void run(cpu& device, extent count, extent cost, const Work& work) {
        const row_partition partition = partition_rows(count, cost);
        device.parallel_for(partition.count, [&](extent piece) {
            const extent begin = partition.begin(piece), end = begin + partition.rows_of(piece);
            for (extent i = begin; i < end; ++i) work(host_thread{}, i);
        });
    }
};

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
