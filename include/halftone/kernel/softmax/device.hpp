// SPDX-License-Identifier: MIT
/// \file
/// Softmax on a GPU; softmax.hpp has its arguments, its contract and an example.
///
/// A row is read once and held in registers, by a warp or by a block; a row too wide for that is walked by a block, once for
/// its maximum and sum together and once to write.
#pragma once

#include <cmath>

#include <halftone/kernel/rows/device.hpp>
#include <halftone/kernel/softmax/online.hpp>
#include <halftone/kernel/softmax/softmax.hpp>

namespace halftone::inline HALFTONE_ABI::kernel {

namespace on_device {

enum class softmax_form { plain, logarithm };

/// One row by `Threads` threads in vectors of N; `Held` vectors a thread stay in registers, 0: none.
template <class X, class Y, softmax_form Form, int N, int Threads, int Held>
struct softmax_kernel {
    using team = row_team<Threads>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const X> x;
    global_span<Y> y;
    extent rows, width;
    float scale;

    grid_shape grid() const { return team::grid(rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= rows) return;
        const auto from = x.part(row * width, width);
        const auto to = y.part(row * width, width);
        const int me = team::member(simt);

        if constexpr (Held > 0) {
            const int vectors = static_cast<int>(width / N) - me;  // from mine on
            const auto first_to = to.from(me * N);
            vec<X, N> found[Held];
            hold<Threads>(simt, from.from(me * N), 0, vectors, found);
            vec<float, N> held[Held];
            float mine = minus_infinity;
            HALFTONE_UNROLL for (int i = 0; i < Held; ++i) {
                held[i] = scaled(to_float(found[i]), scale);
                if (i * Threads < vectors) mine = largest_of(mine, held[i]);
            }
            const float largest = team::max(simt, mine, constant<0>{});
            float sum = 0;
            HALFTONE_UNROLL for (int i = 0; i < Held; ++i) {
                if (i * Threads < vectors) {
                    HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
                        held[i][e] -= largest;
                        const float power = std::exp(held[i][e]);
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
            const auto walk = row_walk<N>::over(width, to.data, from.data);
            const auto inner = from.from(walk.head);
            exponential_sum mine;
            for (extent k = me; k < walk.items(); k += Threads) {
                if (k < walk.vectors) {
                    mine.add(scaled(load_floats<N>(simt, inner, k), scale));
                } else {
                    mine.add(scaled(load_floats<1>(simt, from, walk.edge(k)), scale));
                }
            }
            const exponential_sum whole = mine.template over<team>(simt);
            const float last = last_operand(whole.sum);
            for (extent k = me; k < walk.items(); k += Threads) {
                if (k < walk.vectors) {
                    write<N>(simt, to.from(walk.head), inner, k, whole.largest, last);
                } else {
                    write<1>(simt, to, from, walk.edge(k), whole.largest, last);
                }
            }
        }
    }

  private:
    HALFTONE_HD HALFTONE_INLINE static float last_operand(float sum) { return Form == softmax_form::plain ? 1.0f / sum : std::log(sum); }
    /// Out of the exponential, or for the logarithm out of the difference from the largest.
    HALFTONE_HD HALFTONE_INLINE static float finished(float v, float last) { return Form == softmax_form::plain ? v * last : v - last; }

    HALFTONE_KERNEL template <int M, class Simt>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, const global_span<Y>& to, const global_span<const X>& from, extent i, float largest, float last) const {
        vec<float, M> v = scaled(load_floats<M>(simt, from, i), scale);
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) {
            v[e] -= largest;
            v[e] = finished(Form == softmax_form::plain ? std::exp(v[e]) : v[e], last);
        }
        store_rounded<M>(simt, to, i, v);
    }
};

/// dx = scale y (dy - sum(dy y)); of the logarithm scale (dy - exp(y) sum(dy)).
template <class X, class Y, softmax_form Form, int N, int Threads, int Held>
struct softmax_backward_kernel {
    using team = row_team<Threads, 1>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const Y> y, dy;
    global_span<X> dx;
    extent rows, width;
    float scale;
    write_mode mode;

    grid_shape grid() const { return team::grid(rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= rows) return;
        const auto values = y.part(row * width, width);
        const auto incoming = dy.part(row * width, width);
        const auto to = dx.part(row * width, width);
        const int me = team::member(simt);

        if constexpr (Held > 0) {
            const extent vectors = width / N;
            vec<Y, N> v[Held], d[Held];
            float mine = 0;
            hold<Threads>(simt, values, me, vectors, v);
            hold<Threads>(simt, incoming, me, vectors, d);
            HALFTONE_UNROLL for (int i = 0; i < Held; ++i) mine += term(to_float(v[i]), to_float(d[i]));
            const float sum = team::sum(simt, mine, constant<0>{});
            HALFTONE_UNROLL for (int i = 0; i < Held; ++i) {
                if (const int k = me + i * Threads; k < vectors) write(simt, to, k, to_float(v[i]), to_float(d[i]), sum);
            }
        } else {
            const auto walk = row_walk<N>::over(width, to.data, values.data, incoming.data);
            const auto inner = values.from(walk.head);
            const auto inner_incoming = incoming.from(walk.head);
            float mine = 0;
            for (extent k = me; k < walk.items(); k += Threads) {
                mine += k < walk.vectors ? term(load_floats<N>(simt, inner, k), load_floats<N>(simt, inner_incoming, k))
                                         : term(load_floats<1>(simt, values, walk.edge(k)), load_floats<1>(simt, incoming, walk.edge(k)));
            }
            const float sum = team::sum(simt, mine, constant<0>{});
            for (extent k = me; k < walk.items(); k += Threads) {
                if (k < walk.vectors) {
                    write(simt, to.from(walk.head), k, load_floats<N>(simt, inner, k), load_floats<N>(simt, inner_incoming, k), sum);
                } else {
                    const extent j = walk.edge(k);
                    write(simt, to, j, load_floats<1>(simt, values, j), load_floats<1>(simt, incoming, j), sum);
                }
            }
        }
    }

  private:
    template <int M>
    HALFTONE_HD HALFTONE_INLINE static float term(const vec<float, M>& v, const vec<float, M>& d) {
        float sum = 0;
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) sum += Form == softmax_form::plain ? d[e] * v[e] : d[e];
        return sum;
    }
    HALFTONE_KERNEL template <class Simt, int M>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, const global_span<X>& to, extent i, const vec<float, M>& v, const vec<float, M>& d, float sum) const {
        vec<float, M> out = mode == write_mode::add ? load_floats<M>(simt, to, i) : vec<float, M>{};
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) {
            out[e] += Form == softmax_form::plain ? v[e] * scale * (d[e] - sum) : (d[e] - std::exp(v[e]) * sum) * scale;
        }
        store_rounded<M>(simt, to, i, out);
    }
};

template <simt_device Device, softmax_form Form>
struct softmax_driver {
    template <class X, class Y>
    static void forward(Device& device, const softmax_forward<X, Y>& a) {
        check(a);
        const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
        const auto launch = [&]<int N, int Threads, int Held>(constant<N>, constant<Threads>, constant<Held>) {
            device.launch(softmax_kernel<X, Y, Form, N, Threads, Held>{simt::span_of(a.x), simt::span_of(a.y), rows, width, a.scale});
        };
        choose_team<X, Y>(width, launch, a.x.data(), a.y.data());
    }

    template <class X, class Y>
    static void backward(Device& device, const softmax_backward<X, Y>& a) {
        check(a);
        const extent rows = a.y.extent_of(0), width = a.y.extent_of(1);
        const auto launch = [&]<int N, int Threads, int Held>(constant<N>, constant<Threads>, constant<Held>) {
            device.launch(softmax_backward_kernel<X, Y, Form, N, Threads, Held>{simt::span_of(a.y), simt::span_of(a.dy), simt::span_of(a.dx), rows, width,
                                                                                a.scale, a.mode});
        };
        choose_team<X, Y>(width, launch, a.y.data(), a.dy.data(), a.dx.data());
    }
};

}  // namespace on_device

template <simt_device Device>
struct softmax<Device> : on_device::softmax_driver<Device, on_device::softmax_form::plain> {};
template <simt_device Device>
struct log_softmax<Device> : on_device::softmax_driver<Device, on_device::softmax_form::logarithm> {};

}  // namespace halftone::inline HALFTONE_ABI::kernel
