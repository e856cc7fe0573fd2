// SPDX-License-Identifier: MIT
/// \file
/// Normalisation by channels on devices that run GPU kernels; channel_norm.hpp has the contract and examples. One warp
/// sums a segment; pointwise steps have one thread per element.
#pragma once

#include <halftone/exec/simt/reduce.hpp>
#include <halftone/kernel/axis_reduction/device.hpp>
#include <halftone/kernel/channel_norm/each/whole.hpp>
#include <halftone/kernel/common/fp64/device.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

template <class X, class Y>
struct segment_sums_kernel {
    static constexpr int threads = 128, warps = threads / 32;
    static constexpr simt::word shared_bytes = 0;

    channel_sets sets;
    global_span<const X> x;
    global_span<const Y> dy;
    global_span<const float> mean;
    global_span<channel_each::segment_sums<float>> sums;

    simt::grid_shape grid() const { return simt::blocks_for(sets.segments(), warps); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent segment = static_cast<extent>(simt.block().x) * warps + simt.warp();
        if (segment >= sets.segments()) return;  // whole warps return, so that shuffles have all 32 lanes
        const float average = simt.load(mean, sets.set_of(segment));
        const extent first = segment * sets.area, end = first + sets.area;
        float of_dy = 0, of_dy_x = 0;
        for (extent i = first + simt.lane(); i < end; i += 32) {
            const float d = static_cast<float>(simt.load(dy, i));
            of_dy += d;
            of_dy_x += d * (static_cast<float>(simt.load(x, i)) - average);
        }
        of_dy = simt::warp_sum(simt, of_dy);
        of_dy_x = simt::warp_sum(simt, of_dy_x);
        if (simt.lane() == 0) simt.store(sums, segment, channel_each::segment_sums<float>{of_dy, of_dy_x});
    }
};

}  // namespace on_device

template <simt_device Device>
struct channel_norm<Device> {
    template <class X, class Y, class S>
    static void apply(Device& device, const channel_sets& sets, const X* x, const channel_each::segment_line<S>* table,
                      Y* y) {
        channel_each::apply_each(device, sets, x, table, y);
    }
    template <class X, class Y, class S>
    static void sums(Device& device, const channel_sets& sets, const X* x, const S* mean, const Y* dy,
                     channel_each::segment_sums<S>* sums) {
        if constexpr (std::is_same_v<S, double>) {
            channel_each::sums_each(device, sets, x, mean, dy, sums);
        } else {
            device.launch(on_device::segment_sums_kernel<X, Y>{
                sets, {x, sets.elements()}, {dy, sets.elements()}, {mean, sets.sets()}, {sums, sets.segments()}});
        }
    }
    template <class X, class Y, class S>
    static void input_gradient(Device& device, const channel_sets& sets, const X* x, const Y* dy,
                               const channel_each::segment_slope<S>* table, X* dx, write_mode mode) {
        channel_each::input_gradient_each(device, sets, x, dy, table, dx, mode);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
