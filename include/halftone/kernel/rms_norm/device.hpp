// SPDX-License-Identifier: MIT
/// \file
/// Root mean square normalisation on a GPU; rms_norm.hpp has its arguments, its contract and an example.
///
/// A row is read once and held in registers, by a warp or by a block; a row too wide for that is walked by a block,
/// whose second reading comes from the cache. The backward pass takes two kernels: one over rows for dx, one over
/// columns for the partial sums of dgain, which are then added up.
#pragma once

#include <cmath>

#include <halftone/kernel/fp64/device.hpp>
#include <halftone/kernel/rms_norm/fp64.hpp>
#include <halftone/kernel/rms_norm/rms_norm.hpp>
#include <halftone/kernel/rows/care_device.hpp>
#include <halftone/kernel/rows/device.hpp>
#include <halftone/kernel/rows/spaced.hpp>

namespace halftone::inline HALFTONE_ABI::kernel {

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

/// dx = rstd (dy gain - xhat mean(dy gain xhat)), row by row.
template <class X, class W, class Y, int N, int Threads, int Held>
struct rms_norm_dx_kernel {
    using team = row_team<Threads, 1>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const X> x;
    global_span<const W> gain;
    global_span<const Y> dy;
    global_span<const float> rstd;
    global_span<X> dx;
    extent rows, width, x_stride, dy_stride, dx_stride;
    write_mode mode;

    grid_shape grid() const { return team::grid(rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= rows) return;
        const auto values = x.part(row * x_stride, width);
        const auto incoming = dy.part(row * dy_stride, width);
        const auto to = dx.part(row * dx_stride, width);
        const int me = team::member(simt);
        const float scale = simt.load(rstd, row);
        const auto steps = row_steps<N, Threads, Held>::over(me, width, to.data, values.data, incoming.data, gain.data);
        const row_values<X, N, Threads, Held> v(simt, steps, values);
        const row_values<Y, N, Threads, Held> d(simt, steps, incoming);
        float mine = 0;
        steps.each_or_zeros([&](const auto& place) {
            mine += terms(v.at(simt, place), d.at(simt, place), place.load(simt, gain), scale);
        });
        const float along = team::sum(simt, mine, constant<0>{}) / static_cast<float>(width);
        steps.each([&](const auto& place) {
            write(simt, place, to, v.at(simt, place), d.at(simt, place), place.load(simt, gain), scale, along);
        });
    }

  private:
    template <int M>
    HALFTONE_HD HALFTONE_INLINE static float terms(const vec<float, M>& v, const vec<float, M>& d,
                                                   const vec<float, M>& g, float scale) {
        float sum = 0;
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) sum += d[e] * g[e] * (v[e] * scale);
        return sum;
    }
    HALFTONE_KERNEL template <class Simt, int M>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, const row_place<M>& place, const global_span<X>& to,
                                           const vec<float, M>& v, const vec<float, M>& d, const vec<float, M>& g,
                                           float scale, float along) const {
        vec<float, M> out = mode == write_mode::add ? place.load(simt, to) : vec<float, M>{};
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) out[e] += (d[e] * g[e] - v[e] * scale * along) * scale;
        place.store(simt, to, out);
    }
};

/// For each piece of rows and each column: the sum of dy xhat.
template <class X, class Y, int N>
struct rms_norm_sums_kernel {
    using team = column_team<N, 1>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const X> x;
    global_span<const Y> dy;
    global_span<const float> rstd;
    global_span<float> dgain;  // (pieces, width)
    row_pieces cut;
    extent width, x_stride, dy_stride;

    grid_shape grid() const { return team::grid(width, cut.count); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent j = team::column(simt), first = cut.begin(simt.block().y),
                     end = first + cut.rows_of(simt.block().y);
        vec<float, N> sums{};
        if (j < width) {
            for (extent row = first + simt.warp(); row < end; row += team::warps) {
                const vec<float, N> d = load_floats<N>(simt, dy.from(row * dy_stride + j), 0),
                                    v = load_floats<N>(simt, x.from(row * x_stride + j), 0);
                const float scale = simt.load(rstd, row);
                HALFTONE_UNROLL for (int e = 0; e < N; ++e) sums[e] += d[e] * (v[e] * scale);
            }
        }
        team::leave(simt, 0, sums);
        simt.barrier();
        team::write(simt, 0, dgain, width);
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
        using namespace on_device;
        const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
        const row_pieces cut = on_device::cut_rows_for_sums(rows);
        const bool wanted = a.dgain.data() != nullptr;
        const workspace::lease partials(device.scratch(),
                                        static_cast<std::size_t>(wanted ? cut.count * width : 0) * sizeof(float));
        float* const dgain = partials.as<float>();
        if (wanted) {  // before dx, which may lie where dy does
            const auto sum = [&]<int N>(constant<N>) {
                device.launch(rms_norm_sums_kernel<X, Y, N>{.x = simt::hull_of(a.x),
                                                            .dy = simt::hull_of(a.dy),
                                                            .rstd = simt::span_of(a.rstd),
                                                            .dgain = {dgain, cut.count * width},
                                                            .cut = cut,
                                                            .width = width,
                                                            .x_stride = a.x.stride_of(0),
                                                            .dy_stride = a.dy.stride_of(0)});
            };
            constexpr int n = longest<X, Y>;
            const bool aligned = can_use_vectors(n, width, a.x.data(), second_row(a.x), a.dy.data(), second_row(a.dy));
            aligned ? sum(constant<n>{}) : sum(constant<1>{});
        }
        const auto launch = [&]<int N, int Threads, int Held>(constant<N>, constant<Threads>, constant<Held>) {
            device.launch(rms_norm_dx_kernel<X, W, Y, N, Threads, Held>{.x = simt::hull_of(a.x),
                                                                        .gain = simt::span_of(a.gain),
                                                                        .dy = simt::hull_of(a.dy),
                                                                        .rstd = simt::span_of(a.rstd),
                                                                        .dx = simt::hull_of(a.dx),
                                                                        .rows = rows,
                                                                        .width = width,
                                                                        .x_stride = a.x.stride_of(0),
                                                                        .dy_stride = a.dy.stride_of(0),
                                                                        .dx_stride = a.dx.stride_of(0),
                                                                        .mode = a.dx_mode});
        };
        choose_team<X, W, Y>(width, launch, a.x.data(), second_row(a.x), a.gain.data(), a.dy.data(), second_row(a.dy),
                             a.dx.data(), second_row(a.dx));
        if (wanted) add_partials(device, cut.count, dgain, width, width, a.dgain.data(), a.parameter_mode);
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel
