// SPDX-License-Identifier: MIT
/// \file
/// Layer and root mean square normalisation on a GPU; layer_norm.hpp and rms_norm.hpp have their arguments, contracts and
/// examples.
///
/// A row is read once and held in registers, by a warp or by a block; a row that is too wide for that is streamed by a
/// block, whose later passes read from the cache. The backward pass is in device/backward.hpp.
#pragma once

#include <cmath>

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/norm/care/device.hpp>
#include <halftone/kernel/norm/device/backward.hpp>
#include <halftone/kernel/norm/fp64.hpp>
#include <halftone/kernel/norm/layer_norm.hpp>
#include <halftone/kernel/norm/rms_norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// One row for `Threads` threads, in vectors of N; a thread holds `Held` vectors in registers, 0: none. Rows that are
/// not centred (RMS norm) have neither mean nor bias.
template <bool Centred, class X, class W, class Y, int N, int Threads, int Held>
struct norm_kernel {
    static constexpr int sums = Centred ? 2 : 1;  // over a row: of its elements, and of squares
    using team = row_team<Threads, sums>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes =
        team::shared_bytes < careful_bytes<Threads> ? careful_bytes<Threads> : team::shared_bytes;

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
        if (row >= rows) return;  // the whole team returns, so collectives have all threads
        const auto from = x.part(row * x_stride, width);
        const auto to = y.part(row * y_stride, width);
        const int me = team::member(simt);
        const auto steps = row_steps<N, Threads, Held>::over(me, width, to.data, from.data, gain.data, bias.data);
        const row_values<X, N, Threads, Held> values(simt, steps, from);
        float average = 0, squares = 0;
        if constexpr (Centred) {
            float sum = 0;
            steps.each_or_zeros([&](const auto& place) { sum += plain_sum(values.at(simt, place)); });
            average = team::sum(simt, sum, constant<0>{}) / static_cast<float>(width);
            steps.each([&](const auto& place) { squares += squares_of(values.at(simt, place), average); });
        } else {
            steps.each_or_zeros([&](const auto& place) { squares += squares_of(values.at(simt, place), 0); });
        }
        const float variance = team::sum(simt, squares, constant<sums - 1>{}) / static_cast<float>(width);
        if (limits.are_exceeded(average, variance)) return with_care(simt, row, from, to, me);  // the same in the whole team
        const float scale = 1 / std::sqrt(variance + epsilon);
        steps.each([&](const auto& place) { write(simt, place, to, values.at(simt, place), average, scale); });
        put_statistics(simt, row, me, average, scale);
    }

  private:
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void with_care(Simt simt, extent row, const global_span<const X>& from, const global_span<Y>& to,
                               int me) const {
        const auto count = static_cast<double>(width);
        const auto value = [&](extent j) { return static_cast<double>(simt.load(from, j)); };
        double average = 0;
        if constexpr (Centred) average = careful_sum<Threads>(simt, me, width, value) / count;
        const auto square = [&](extent j) { return (value(j) - average) * (value(j) - average); };
        const double squares = careful_sum<Threads>(simt, me, width, square);
        const double scale = 1 / std::sqrt(squares / count + static_cast<double>(epsilon));
        for (extent j = me; j < width; j += Threads) {
            double v = (value(j) - average) * scale * static_cast<double>(simt.load(gain, j));
            if constexpr (Centred) v += bias.is_there() ? static_cast<double>(simt.load(bias, j)) : 0.0;
            simt.store(to, j, Y(v));
        }
        put_statistics(simt, row, me, static_cast<float>(average), static_cast<float>(scale));
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void put_statistics(Simt simt, extent row, int me, float average, float scale) const {
        if (me != 0) return;
        if constexpr (Centred) {
            if (mean.is_there()) simt.store(mean, row, average);
        }
        if (rstd.is_there()) simt.store(rstd, row, scale);
    }
    template <int M>
    HALFTONE_HD HALFTONE_INLINE static float plain_sum(const vec<float, M>& v) {
        float sum = 0;
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) sum += v[e];
        return sum;
    }
    template <int M>
    HALFTONE_HD HALFTONE_INLINE static float squares_of(const vec<float, M>& v, float average) {
        float squares = 0;
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) {
            const float deviation = Centred ? v[e] - average : v[e];
            squares += deviation * deviation;
        }
        return squares;
    }
    HALFTONE_KERNEL template <class Simt, int M>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, const row_place<M>& place, const global_span<Y>& to,
                                           const vec<float, M>& v, float average, float scale) const {
        const vec<float, M> g = place.load(simt, gain);
        vec<float, M> out;
        if constexpr (Centred) {
            const vec<float, M> b = bias.is_there() ? place.load(simt, bias) : vec<float, M>{};
            HALFTONE_UNROLL for (int e = 0; e < M; ++e) out[e] = (v[e] - average) * scale * g[e] + b[e];
        } else {
            HALFTONE_UNROLL for (int e = 0; e < M; ++e) out[e] = v[e] * scale * g[e];
        }
        place.store(simt, to, out);
    }
};

}  // namespace on_device

template <simt_device Device>
struct norm<Device> {
    template <class Arguments>
    static void forward(Device& device, const Arguments& a) {
        using X = typename decltype(a.x)::value_type;
        using W = typename decltype(a.gain)::value_type;
        using Y = typename decltype(a.y)::value_type;
        if constexpr (in_double<X, W, Y>) {
            fp64::norm_rows(device, a);
        } else {
            forward_in_float<X, W, Y>(device, a);
        }
    }
    template <class Arguments>
    static void backward(Device& device, const Arguments& a) {
        if constexpr (in_double<typename decltype(a.rstd)::value_type>) {
            fp64::norm_backward_rows(device, a);
        } else {
            on_device::norm_backward(device, a);
        }
    }

  private:
    template <class X, class W, class Y, class Arguments>
    static void forward_in_float(Device& device, const Arguments& a) {
        using namespace on_device;
        const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
        const const_view<W, 1> bias = bias_of(a);
        const auto launch = [&]<int N, int Threads, int Held>(constant<N>, constant<Threads>, constant<Held>) {
            device.launch(
                norm_kernel<is_centred<Arguments>, X, W, Y, N, Threads, Held>{.x = simt::bounding_span_of(a.x),
                                                                              .gain = simt::span_of(a.gain),
                                                                              .bias = {bias.data(), width},
                                                                              .y = simt::bounding_span_of(a.y),
                                                                              .mean = {mean_of(a).data(), rows},
                                                                              .rstd = {a.rstd.data(), rows},
                                                                              .rows = rows,
                                                                              .width = width,
                                                                              .x_stride = a.x.stride_of(0),
                                                                              .y_stride = a.y.stride_of(0),
                                                                              .epsilon = a.epsilon,
                                                                              .limits = {sum_depth(width), a.epsilon}});
        };
        choose_team<128, held_by_wide_thread<longest<X, W, Y>, X, Y>, X, W, Y>(
            width, launch, a.x.data(), second_row(a.x), a.gain.data(), bias.data(), a.y.data(), second_row(a.y));
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
