// SPDX-License-Identifier: MIT
/// \file
/// Softmax on a GPU; softmax.hpp has its arguments, its contract and an example.
///
/// A row is read once and held, by a warp or by a block; a row that is too wide for that is streamed by a block, once
/// for its maximum and sum together (online softmax) and once to write.
#pragma once

#include <cmath>

#include <halftone/kernel/common/fp64/device.hpp>
#include <halftone/kernel/common/rows/copied.hpp>
#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/common/rows/online.hpp>
#include <halftone/kernel/common/rows/strided.hpp>
#include <halftone/kernel/softmax/fp64.hpp>
#include <halftone/kernel/softmax/softmax.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

namespace on_device {

/// One row for `Threads` threads, in vectors of N; a thread holds `Held` vectors in registers, 0: none.
template <class X, class Y, softmax_form Form, int N, int Threads, int Held>
struct softmax_kernel {
    using team = row_team<Threads>;
    using number = std::conditional_t<Form == softmax_form::plain, Y, float>;  // decides the accuracy of exponentials
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const X> x;
    global_span<Y> y;
    extent rows, width, x_stride, y_stride;
    float scale;

    grid_shape grid() const { return team::grid(rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= rows) return;
        const auto from = x.part(row * x_stride, width);
        const auto to = y.part(row * y_stride, width);
        const int me = team::member(simt);
        const float sign = scale < 0 ? -1.0f : 1.0f, factor = scale * sign;

        if constexpr (Held > 0) {
            const int vectors = static_cast<int>(width / N) - me;  // from this thread's on
            const auto first_to = to.from(me * N);
            vec<X, N> found[Held];
            hold<Threads>(simt, from.from(me * N), 0, vectors, found);
            vec<float, N> held[Held];
            float mine = minus_infinity;
            HALFTONE_UNROLL for (int i = 0; i < Held; ++i) {
                held[i] = scaled(to_float(found[i]), sign);
                if (i * Threads < vectors) mine = largest_of(mine, held[i]);
            }
            const float largest = team::max(simt, mine, constant<0>{});
            float sum = 0;
            HALFTONE_UNROLL for (int i = 0; i < Held; ++i) {
                if (i * Threads < vectors) {
                    HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
                        held[i][e] = (held[i][e] - largest) * factor;
                        const float power = exponential<number>(held[i][e]);
                        if constexpr (Form == softmax_form::plain) held[i][e] = power;
                        sum += power;
                    }
                }
            }
            const float last = last_operand(team::sum(simt, sum, constant<1>{}));
            HALFTONE_UNROLL for (int i = 0; i < Held; ++i) {
                if (i * Threads < vectors) {
                    HALFTONE_UNROLL for (int e = 0; e < N; ++e) held[i][e] = finished(held[i][e], last);
                    store_rounded<N>(simt, first_to, i * Threads, held[i]);
                }
            }
        } else {
            const auto steps = row_steps<N, Threads, 0>::over(me, width, to.data, from.data);
            exponential_sum<number> mine;
            steps.each([&](const auto& place) { mine.add(scaled(place.load(simt, from), sign), factor); });
            const exponential_sum<number> whole = mine.template over<team>(simt, factor);
            const float last = last_operand(whole.sum);
            steps.each([&](const auto& place) {
                write(simt, place, to, scaled(place.load(simt, from), sign), whole.largest, factor, last);
            });
        }
    }

  private:
    HALFTONE_HD HALFTONE_INLINE static float last_operand(float sum) {
        return Form == softmax_form::plain ? 1.0f / sum : std::log(sum);
    }
    /// The result: from the exponential, or for log_softmax from the difference to the maximum.
    HALFTONE_HD HALFTONE_INLINE static float finished(float v, float last) {
        return Form == softmax_form::plain ? v * last : v - last;
    }

    HALFTONE_KERNEL template <class Simt, int M>
    HALFTONE_HD HALFTONE_INLINE static void write(Simt simt, const row_place<M>& place, const global_span<Y>& to,
                                                  vec<float, M> v, float largest, float factor, float last) {
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) {
            v[e] = (v[e] - largest) * factor;
            v[e] = finished(Form == softmax_form::plain ? exponential<number>(v[e]) : v[e], last);
        }
        place.store(simt, to, v);
    }
};

/// dx = scale y (dy - sum(dy y)); for log_softmax scale (dy - exp(y) sum(dy)).
template <class X, class Y, softmax_form Form, int N, int Threads, int Held>
struct softmax_backward_kernel {
    using team = row_team<Threads, 1>;
    using pair = row_pair<Y, Y, N, Threads, Held>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes + pair::bytes;

    global_span<const Y> y, dy;
    global_span<X> dx;
    extent rows, width, y_stride, dy_stride, dx_stride;
    float scale;
    write_mode mode;

    grid_shape grid() const { return team::grid(rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= rows) return;
        const auto values = y.part(row * y_stride, width);
        const auto incoming = dy.part(row * dy_stride, width);
        const auto to = dx.part(row * dx_stride, width);

        const auto steps =
            row_steps<N, Threads, Held>::over(team::member(simt), width, to.data, values.data, incoming.data);
        const pair in(simt, steps, values, incoming, team::shared_bytes);
        float mine = 0;
        steps.each_or_zeros([&](const auto& place) { mine += term(in.first(simt, place), in.second(simt, place)); });
        const float sum = team::sum(simt, mine, constant<0>{});
        steps.each([&](const auto& place) {
            write(simt, place, to, in.first(simt, place), in.second(simt, place), sum);
        });
    }

  private:
    template <int M>
    HALFTONE_HD HALFTONE_INLINE static float term(const vec<float, M>& v, const vec<float, M>& d) {
        float sum = 0;
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) sum += Form == softmax_form::plain ? d[e] * v[e] : d[e];
        return sum;
    }
    HALFTONE_KERNEL template <class Simt, int M>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, const row_place<M>& place, const global_span<X>& to,
                                           const vec<float, M>& v, const vec<float, M>& d, float sum) const {
        vec<float, M> out = mode == write_mode::add ? place.load(simt, to) : vec<float, M>{};
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) {
            out[e] += Form == softmax_form::plain ? v[e] * scale * (d[e] - sum) : (d[e] - std::exp(v[e]) * sum) * scale;
        }
        place.store(simt, to, out);
    }
};

template <simt_device Device, softmax_form Form>
struct softmax_driver {
    template <class X, class Y>
    static constexpr int wide_held = held_by_wide_thread<longest<X, Y>, X, Y>;

    template <class X, class Y>
        requires in_double<X, Y>
    static void forward(Device& device, const softmax_forward<X, Y>& a) { fp64::softmax_rows<Form>(device, a); }
    template <class X, class Y>
        requires in_double<X, Y>
    static void backward(Device& device, const softmax_backward<X, Y>& a) { fp64::softmax_rows<Form>(device, a); }

    template <class X, class Y>
    static void forward(Device& device, const softmax_forward<X, Y>& a) {
        check(a);
        const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
        const auto launch = [&]<int N, int Threads, int Held>(constant<N>, constant<Threads>, constant<Held>) {
            device.launch(softmax_kernel<X, Y, Form, N, Threads, Held>{simt::bounding_span_of(a.x),
                                                                       simt::bounding_span_of(a.y), rows, width,
                                                                       a.x.stride_of(0), a.y.stride_of(0), a.scale});
        };
        choose_team<128, wide_held<X, Y>, X, Y>(width, launch, a.x.data(), second_row(a.x), a.y.data(),
                                                second_row(a.y));
    }

    template <class X, class Y>
    static void backward(Device& device, const softmax_backward<X, Y>& a) {
        check(a);
        const extent rows = a.y.extent_of(0), width = a.y.extent_of(1);
        const auto launch = [&]<int N, int Threads, int Held>(constant<N>, constant<Threads>, constant<Held>) {
            device.launch(softmax_backward_kernel<X, Y, Form, N, Threads, Held>{
                simt::bounding_span_of(a.y), simt::bounding_span_of(a.dy), simt::bounding_span_of(a.dx), rows, width,
                a.y.stride_of(0), a.dy.stride_of(0), a.dx.stride_of(0), a.scale, a.mode});
        };
        choose_team<128, wide_held<X, Y>, X, Y>(width, launch, a.y.data(), second_row(a.y), a.dy.data(),
                                                second_row(a.dy), a.dx.data(), second_row(a.dx));
    }
};

}  // namespace on_device

template <simt_device Device>
struct softmax<Device> : on_device::softmax_driver<Device, softmax_form::plain> {};
template <simt_device Device>
struct log_softmax<Device> : on_device::softmax_driver<Device, softmax_form::logarithm> {};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
