// SPDX-License-Identifier: MIT
/// \file
/// Kernels in double on devices that run GPU kernels, one thread an index; each.hpp has their contract and an example.
#pragma once

#include <halftone/exec/simt/simt.hpp>
#include <halftone/kernel/common/fp64/each.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

template <class Work>
struct each_kernel {
    static constexpr int threads = 128;
    static constexpr simt::word shared_bytes = 0;

    Work work;
    extent count;

    simt::grid_shape grid() const { return simt::blocks_for(count, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent i = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (i < count) work(simt, i);
    }
};

}  // namespace on_device

namespace fp64 {

template <simt_device Device>
struct each<Device> {
    template <class Work>
    static void run(Device& device, extent count, extent, const Work& work) {
        device.launch(on_device::each_kernel<Work>{work, count});
    }
};

}  // namespace fp64

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
