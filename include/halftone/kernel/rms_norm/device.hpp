// SPDX-License-Identifier: MIT
/// \file
/// Root mean square normalisation on a GPU; rms_norm.hpp has its arguments, its contract and an example.
///
/// A row is read once and held in registers, by a warp or by a block; a row too wide for that is walked by a block,
/// whose second reading comes from the cache. The backward pass is in kernel/common/rows/norm_device.hpp.
#pragma once

#include <cmath>

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/common/rows/care_device.hpp>
#include <halftone/kernel/common/rows/norm_device.hpp>
#include <halftone/kernel/rms_norm/fp64.hpp>
#include <halftone/kernel/rms_norm/rms_norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// One row by `Threads` threads in vectors of N; `Held` vectors a thread stay in registers, 0: none.
template <class X, class W, class Y, int N, int Threads, int Held>
struct rms_norm_kernel {
    using team = row_team<Threads, 1>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = careful_bytes<Threads>;
    static_assert(team::shared_bytes <= shared_bytes);

    global_span<const X> x;
    global_span<const W> gain;
    global_span<Y> y;
    global_span<float> rstd;
    extent rows, width, x_stride, y_stride;
    float epsilon;
    row_limits<float> limits;

    grid_shape grid() const { return team::grid(rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= rows) return;
        const auto from = x.part(row * x_stride, width);
        const auto to = y.part(row * y_stride, width);
        const int me = team::member(simt);
        const auto steps = row_steps<N, Threads, Held>::over(me, width, to.data, from.data, gain.data);
        const row_values<X, N, Threads, Held> values(simt, steps, from);
        float mine = 0;
        steps.each_or_zeros([&](const auto& place) { mine += squares_of(values.at(simt, place)); });
        const float mean_square = team::sum(simt, mine, constant<0>{}) / static_cast<float>(width);
        if (limits.are_passed(0, mean_square)) return with_care(simt, row, from, to, me);  // the whole team does
        const float scale = 1 / std::sqrt(mean_square + epsilon);
        steps.each([&](const auto& place) { write(simt, place, to, values.at(simt, place), scale); });
        if (me == 0 && rstd.is_there()) simt.store(rstd, row, scale);
    }

  private:
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void with_care(Simt simt, extent row, const global_span<const X>& from, const global_span<Y>& to,
                               int me) const {
        const auto value = [&](extent j) { return static_cast<double>(simt.load(from, j)); };
        const double squares =
            careful_sum<Threads>(simt, me, width, [&](extent j) { return value(j) * value(j); });
        const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(epsilon));
        for (extent j = me; j < width; j += Threads)
            simt.store(to, j, Y(value(j) * scale * static_cast<double>(simt.load(gain, j))));
        if (me == 0 && rstd.is_there()) simt.store(rstd, row, static_cast<float>(scale));
    }
    template <int M>
    HALFTONE_HD HALFTONE_INLINE static float squares_of(const vec<float, M>& v) {
        float squares = 0;
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) squares += v[e] * v[e];
        return squares;
    }
    HALFTONE_KERNEL template <class Simt, int M>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, const row_place<M>& place, const global_span<Y>& to,
                                           const vec<float, M>& v, float scale) const {
        const vec<float, M> g = place.load(simt, gain);
        vec<float, M> out;
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) out[e] = v[e] * scale * g[e];
        place.store(simt, to, out);
    }
};

}  // namespace on_device

template <simt_device Device>
struct rms_norm<Device> {
    template <class X, class W, class Y>
        requires in_double<X, W, Y>
    static void forward(Device& device, const rms_norm_forward<X, W, Y>& a) {
        fp64::rms_norm_rows(device, a);
    }
    template <class X, class W, class Y, class G>
        requires in_double<X, W, Y>
    static void backward(Device& device, const rms_norm_backward<X, W, Y, G>& a) {
        fp64::rms_norm_rows(device, a);
    }
    template <class X, class W, class Y>
    static void forward(Device& device, const rms_norm_forward<X, W, Y>& a) {
        check(a);
        using namespace on_device;
        const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
        const auto launch = [&]<int N, int Threads, int Held>(constant<N>, constant<Threads>, constant<Held>) {
            device.launch(rms_norm_kernel<X, W, Y, N, Threads, Held>{.x = simt::hull_of(a.x),
                                                                     .gain = simt::span_of(a.gain),
                                                                     .y = simt::hull_of(a.y),
                                                                     .rstd = {a.rstd.data(), rows},
                                                                     .rows = rows,
                                                                     .width = width,
                                                                     .x_stride = a.x.stride_of(0),
                                                                     .y_stride = a.y.stride_of(0),
                                                                     .epsilon = a.epsilon,
                                                                     .limits = {sum_depth(width), a.epsilon}});
        };
        choose_team<X, W, Y>(width, launch, a.x.data(), second_row(a.x), a.gain.data(), a.y.data(), second_row(a.y));
    }

    template <class X, class W, class Y, class G>
    static void backward(Device& device, const rms_norm_backward<X, W, Y, G>& a) {
        check(a);
        on_device::norm_backward<on_device::rms_norm_row>(device, a);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
