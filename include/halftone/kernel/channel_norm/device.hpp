// SPDX-License-Identifier: MIT
/// \file
/// Normalisation by channels on devices that run GPU kernels; channel_norm.hpp has the contract and examples. One warp
/// sums a segment; in pointwise steps a thread computes 16 bytes of adjacent elements, or one element where arrays are not
/// aligned.
#pragma once

#include <halftone/exec/simt/reduce.hpp>
#include <halftone/kernel/axis_reduction/device.hpp>
#include <halftone/kernel/channel_norm/each/whole.hpp>
#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/common/rows/device.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// The segment of an element, and of those after it.
struct segment_walk {
    extent segment, area, next;  // `next`: the first element of the next segment

    HALFTONE_HD HALFTONE_INLINE segment_walk(extent element, extent area_)
        : segment(element / area_), area(area_), next((segment + 1) * area_) {}
    /// Whether the next segment begins with this element.
    HALFTONE_HD HALFTONE_INLINE bool enters(extent element) {
        if (element != next) return false;
        ++segment, next += area;
        return true;
    }
};

/// y = (x - mean) scale + shift. A thread computes N adjacent elements, whose segments need one division.
template <class X, class Y, int N>
struct segment_line_kernel {
    static constexpr int threads = 128;
    static constexpr word shared_bytes = 0;

    extent area;
    global_span<const X> x;
    global_span<const channel_each::segment_line<float>> table;
    global_span<Y> y;

    grid_shape grid() const { return simt::blocks_for(y.count / N, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent k = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (k >= y.count / N) return;
        segment_walk at(k * N, area);
        vec<float, N> v = load_floats<N>(simt, x, k);
        channel_each::segment_line<float> with = simt.load(table, at.segment);
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
            if (at.enters(k * N + e)) with = simt.load(table, at.segment);
            v[e] = (v[e] - with.mean) * with.scale + with.shift;
        }
        store_rounded<N>(simt, y, k, v);
    }
};

/// dx = (or +=) by_dy dy + (by_x (x - mean) + rest), N adjacent elements a thread.
template <class X, class Y, int N>
struct segment_slope_kernel {
    static constexpr int threads = 128;
    static constexpr word shared_bytes = 0;

    extent area;
    global_span<const X> x;
    global_span<const Y> dy;
    global_span<const channel_each::segment_slope<float>> table;
    global_span<X> dx;
    write_mode mode;

    grid_shape grid() const { return simt::blocks_for(dx.count / N, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent k = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (k >= dx.count / N) return;
        segment_walk at(k * N, area);
        const vec<float, N> v = load_floats<N>(simt, x, k), d = load_floats<N>(simt, dy, k);
        vec<float, N> out{};
        if (mode == write_mode::add) out = load_floats<N>(simt, dx, k);
        channel_each::segment_slope<float> with = simt.load(table, at.segment);
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
            if (at.enters(k * N + e)) with = simt.load(table, at.segment);
            out[e] += with.by_dy * d[e] + (with.by_x * (v[e] - with.mean) + with.rest);
        }
        store_rounded<N>(simt, dx, k, out);
    }
};

/// The sums of a segment, with one warp, each lane of which adds every 32nd vector of N elements.
template <class X, class Y, int N>
struct segment_sums_kernel {
    using team = row_team<32>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = 0;

    channel_sets sets;
    global_span<const X> x;
    global_span<const Y> dy;
    global_span<const float> mean;
    global_span<channel_each::segment_sums<float>> sums;

    grid_shape grid() const { return team::grid(sets.segments()); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent segment = team::row(simt);
        if (segment >= sets.segments()) return;  // whole warps return, so that shuffles have all 32 lanes
        const float average = simt.load(mean, sets.set_of(segment));
        const auto values = x.from(segment * sets.area);
        const auto slopes = dy.from(segment * sets.area);
        const auto steps = row_steps<N, 32, 0>::over(simt.lane(), sets.area, values.data, slopes.data);
        float of_dy = 0, of_dy_x = 0;
        steps.each([&](const auto& place) {
            const auto v = place.load(simt, values), d = place.load(simt, slopes);
            float some_dy = d[0], some_dy_x = d[0] * (v[0] - average);
            HALFTONE_UNROLL for (int e = 1; e < static_cast<int>(sizeof(d) / sizeof(float)); ++e) {
                some_dy += d[e];
                some_dy_x += d[e] * (v[e] - average);
            }
            of_dy += some_dy;
            of_dy_x += some_dy_x;
        });
        of_dy = simt::warp_sum(simt, of_dy);
        of_dy_x = simt::warp_sum(simt, of_dy_x);
        if (simt.lane() == 0) simt.store(sums, segment, channel_each::segment_sums<float>{of_dy, of_dy_x});
    }
};

/// The means that are far from zero (far_mean), with a block of threads for each.
template <class X, class S, int Threads>
struct far_mean_kernel {
    using team = deviation_team<Threads>;
    static constexpr int threads = team::threads;
    static constexpr word shared_bytes = team::shared_bytes;

    channel_each::far_mean<X, S> work;

    grid_shape grid() const { return team::grid(work.mean.count); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        team::each(simt, work.mean.count, [&](extent set) {
            const bool is_far = work.is_far(simt, set);
            reference::reduced r{0, 0};
            if (is_far)
                r = team::variance(simt, work.x, work.layout, set, static_cast<double>(simt.load(work.mean, set)));
            if (simt.thread() != 0) return;
            is_far ? work.put(simt, set, r) : work.put_nothing(simt, set);
        });
    }
};

}  // namespace on_device

template <simt_device Device>
struct channel_norm<Device> {
    template <class X, class S>
    static void center(Device& device, const channel_each::far_mean<X, S>& work) {
        on_device::with_deviation_team(work.layout.reduced_size, [&]<int Threads>(on_device::constant<Threads>) {
            device.launch(on_device::far_mean_kernel<X, S, Threads>{work});
        });
    }
    template <class X, class Y, class S>
    static void apply(Device& device, const channel_sets& sets, const X* x, const channel_each::segment_line<S>* table,
                      Y* y) {
        constexpr int n = on_device::longest<X, Y>;
        const extent size = sets.elements();
        if constexpr (std::is_same_v<S, float>) {
            if (on_device::can_use_vectors(n, size, x, y)) {
                return device.launch(
                    on_device::segment_line_kernel<X, Y, n>{sets.area, {x, size}, {table, sets.segments()}, {y, size}});
            }
        }
        channel_each::apply_each(device, sets, x, table, y);
    }
    template <class X, class Y, class S>
    static void sums(Device& device, const channel_sets& sets, const X* x, const S* mean, const Y* dy,
                     channel_each::segment_sums<S>* sums) {
        if constexpr (std::is_same_v<S, double>) {
            channel_each::sums_each(device, sets, x, mean, dy, sums);
        } else {
            device.launch(on_device::segment_sums_kernel<X, Y, on_device::longest<X, Y>>{
                sets, {x, sets.elements()}, {dy, sets.elements()}, {mean, sets.sets()}, {sums, sets.segments()}});
        }
    }
    template <class X, class Y, class S>
    static void input_gradient(Device& device, const channel_sets& sets, const X* x, const Y* dy,
                               const channel_each::segment_slope<S>* table, X* dx, write_mode mode) {
        constexpr int n = on_device::longest<X, Y>;
        const extent size = sets.elements();
        if constexpr (std::is_same_v<S, float>) {
            if (on_device::can_use_vectors(n, size, x, dy, dx)) {
                return device.launch(on_device::segment_slope_kernel<X, Y, n>{
                    sets.area, {x, size}, {dy, size}, {table, sets.segments()}, {dx, size}, mode});
            }
        }
        channel_each::input_gradient_each(device, sets, x, dy, table, dx, mode);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
