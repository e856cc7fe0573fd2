// SPDX-License-Identifier: MIT
/// \file
/// Counting targets on a GPU, by one block; target_share.hpp has the contract and an example.
#pragma once

#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/target_share/target_share.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

struct target_share_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = threads / 32 * sizeof(double);

    global_span<const std::int32_t> targets, of;
    global_span<target_counts> counts;

    grid_shape grid() const { return {1, 1, 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const double counted = count(simt, targets), all = count(simt, of);
        if (simt.thread() == 0) simt.store(counts, 0, target_counts_of(counted, all));
    }

  private:
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static double count(Simt simt, const global_span<const std::int32_t>& of_these) {
        double n = 0;
        for (extent i = simt.thread(); i < of_these.count; i += threads)
            n += simt.load(of_these, i) == uncounted_target ? 0 : 1;
        return simt::block_sum<threads>(simt, n, shared_span<double>{0, threads / 32});
    }
};

}  // namespace on_device

template <simt_device Device>
struct target_share<Device> {
    static void run(Device& device, const const_view<std::int32_t, 1>& targets, const const_view<std::int32_t, 1>& of,
                    target_counts* counts) {
        check_targets_of_share(targets, of);
        device.launch(
            on_device::target_share_kernel{simt::span_of(targets), simt::span_of(of), {counts, 1}});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
