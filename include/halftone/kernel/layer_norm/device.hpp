// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation on a GPU; layer_norm.hpp has its arguments, its contract and an example.
///
/// A row is read once and held in registers, by a warp or by a block; a row too wide for that is walked by a block,
/// whose second and third reading come from the cache. The backward pass is in kernel/common/rows/norm_device.hpp.
#pragma once

#include <cmath>

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/common/rows/care_device.hpp>
#include <halftone/kernel/common/rows/norm_device.hpp>
#include <halftone/kernel/layer_norm/fp64.hpp>
#include <halftone/kernel/layer_norm/layer_norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// One row by `Threads` threads in vectors of N; `Held` vectors a thread stay in registers, 0: none.
template <class X, class W, class Y, int N, int Threads, int Held>
struct layer_norm_kernel {
    using team = row_team<Threads>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;
    static_assert(careful_bytes<Threads> <= shared_bytes);

    global_span<const X> x;
    global_span<const W> gain, bias;
    global_span<Y> y;
    global_span<float> mean, rstd;
    extent rows, width, x_stride, y_stride;
    float epsilon;
    row_limits<float> limits;

    grid_shape grid() const { return team::grid(rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= rows) return;  // the whole team goes, so that no word of a warp or block misses a thread
        const auto from = x.part(row * x_stride, width);
        const auto to = y.part(row * y_stride, width);
        const int me = team::member(simt);
        const auto steps = row_steps<N, Threads, Held>::over(me, width, to.data, from.data, gain.data, bias.data);
        const row_values<X, N, Threads, Held> values(simt, steps, from);
        float sum = 0, squares = 0;
        steps.each_or_zeros([&](const auto& place) { sum += plain_sum(values.at(simt, place)); });
        const float average = team::sum(simt, sum, constant<0>{}) / static_cast<float>(width);
        steps.each([&](const auto& place) { squares += squares_around(average, values.at(simt, place)); });
        const float variance = team::sum(simt, squares, constant<1>{}) / static_cast<float>(width);
        if (limits.are_passed(average, variance)) return with_care(simt, row, from, to, me);  // the whole team does
        const float scale = 1 / std::sqrt(variance + epsilon);
        steps.each([&](const auto& place) { write(simt, place, to, values.at(simt, place), average, scale); });
        if (me == 0) {
            if (mean.is_there()) simt.store(mean, row, average);
            if (rstd.is_there()) simt.store(rstd, row, scale);
        }
    }

  private:
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void with_care(Simt simt, extent row, const global_span<const X>& from, const global_span<Y>& to,
                               int me) const {
        const auto count = static_cast<double>(width);
        const auto value = [&](extent j) { return static_cast<double>(simt.load(from, j)); };
        const double average = careful_sum<Threads>(simt, me, width, value) / count;
        const auto square = [&](extent j) { return (value(j) - average) * (value(j) - average); };
        const double squares = careful_sum<Threads>(simt, me, width, square);
        const double scale = 1 / std::sqrt(squares / count + static_cast<double>(epsilon));
        for (extent j = me; j < width; j += Threads) {
            const double shift = bias.is_there() ? static_cast<double>(simt.load(bias, j)) : 0.0;
            simt.store(to, j, Y((value(j) - average) * scale * static_cast<double>(simt.load(gain, j)) + shift));
        }
        if (me == 0) {
            if (mean.is_there()) simt.store(mean, row, static_cast<float>(average));
            if (rstd.is_there()) simt.store(rstd, row, static_cast<float>(scale));
        }
    }
    template <int M>
    HALFTONE_HD HALFTONE_INLINE static float plain_sum(const vec<float, M>& v) {
        float sum = 0;
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) sum += v[e];
        return sum;
    }
    template <int M>
    HALFTONE_HD HALFTONE_INLINE static float squares_around(float average, const vec<float, M>& v) {
        float squares = 0;
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) squares += (v[e] - average) * (v[e] - average);
        return squares;
    }
    HALFTONE_KERNEL template <class Simt, int M>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, const row_place<M>& place, const global_span<Y>& to,
                                           const vec<float, M>& v, float average, float scale) const {
        const vec<float, M> g = place.load(simt, gain);
        const vec<float, M> b = bias.is_there() ? place.load(simt, bias) : vec<float, M>{};
        vec<float, M> out;
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) out[e] = (v[e] - average) * scale * g[e] + b[e];
        place.store(simt, to, out);
    }
};

}  // namespace on_device

template <simt_device Device>
struct layer_norm<Device> {
    template <class X, class W, class Y>
        requires in_double<X, W, Y>
    static void forward(Device& device, const layer_norm_forward<X, W, Y>& a) {
        fp64::layer_norm_rows(device, a);
    }
    template <class X, class W, class Y, class G>
        requires in_double<X, W, Y>
    static void backward(Device& device, const layer_norm_backward<X, W, Y, G>& a) {
        fp64::layer_norm_rows(device, a);
    }
    template <class X, class W, class Y>
    static void forward(Device& device, const layer_norm_forward<X, W, Y>& a) {
        check(a);
        using namespace on_device;
        const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
        const auto launch = [&]<int N, int Threads, int Held>(constant<N>, constant<Threads>, constant<Held>) {
            device.launch(layer_norm_kernel<X, W, Y, N, Threads, Held>{.x = simt::hull_of(a.x),
                                                                       .gain = simt::span_of(a.gain),
                                                                       .bias = {a.bias.data(), width},
                                                                       .y = simt::hull_of(a.y),
                                                                       .mean = {a.mean.data(), rows},
                                                                       .rstd = {a.rstd.data(), rows},
                                                                       .rows = rows,
                                                                       .width = width,
                                                                       .x_stride = a.x.stride_of(0),
                                                                       .y_stride = a.y.stride_of(0),
                                                                       .epsilon = a.epsilon,
                                                                       .limits = {sum_depth(width), a.epsilon}});
        };
        choose_team<X, W, Y>(width, launch, a.x.data(), second_row(a.x), a.gain.data(), a.bias.data(), a.y.data(),
                             second_row(a.y));
    }

    template <class X, class W, class Y, class G>
    static void backward(Device& device, const layer_norm_backward<X, W, Y, G>& a) {
        check(a);
        on_device::norm_backward<on_device::layer_norm_row>(device, a, a.mean, a.dbias);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
