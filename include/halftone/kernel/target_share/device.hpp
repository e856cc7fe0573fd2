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

/// A loss_divisor, whose views a kernel reads.
struct divisor_spans {
    global_span<const std::int32_t> targets;
    global_span<const float> weight, terms;
    double number;
    std::int32_t ignored;

    static divisor_spans of(const loss_divisor& d) {
        return {simt::span_of(d.targets), simt::span_of(d.weight), simt::span_of(d.terms), d.number, d.ignore_index};
    }
};

struct target_share_kernel {
    static constexpr int threads = 256;
    static constexpr word shared_bytes = threads / 32 * sizeof(double);

    divisor_spans micro, of;
    global_span<target_counts> counts;

    grid_shape grid() const { return {1, 1, 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const double counted = value(simt, micro), all = value(simt, of);
        if (simt.thread() == 0) simt.store(counts, 0, target_counts_of(counted, all));
    }

  private:
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static double value(Simt simt, const divisor_spans& d) {
        double n = 0;
        for (extent i = simt.thread(); i < d.targets.count; i += threads) {
            const std::int32_t target = simt.load(d.targets, i);
            if (target == d.ignored) continue;
            double w = 1;
            if (d.weight.is_there()) {
                const bool is_class = target >= 0 && target < d.weight.count;
                w = is_class ? static_cast<double>(simt.load(d.weight, target)) : weight_of_no_class;
            }
            n += w;
        }
        for (extent i = simt.thread(); i < d.terms.count; i += threads) n += static_cast<double>(simt.load(d.terms, i));
        return d.number + simt::block_sum<threads>(simt, n, shared_span<double>{0, threads / 32});
    }
};

}  // namespace on_device

template <simt_device Device>
struct target_share<Device> {
    static void run(Device& device, const loss_divisor& micro, const loss_divisor& of, target_counts* counts) {
        device.launch(on_device::target_share_kernel{
            on_device::divisor_spans::of(micro), on_device::divisor_spans::of(of), {counts, 1}});
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
