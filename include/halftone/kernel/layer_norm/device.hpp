// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation on a GPU; layer_norm.hpp has its arguments, its contract and an example.
///
/// A row is read once and held in registers, by a warp or by a block; a row too wide for that is walked by a block,
/// whose second and third reading come from the cache. The backward pass takes two kernels: one over rows for dx, one
/// over columns for the partial sums of dgain and dbias, which are then added up.
#pragma once

#include <cmath>

#include <halftone/kernel/fp64/device.hpp>
#include <halftone/kernel/layer_norm/fp64.hpp>
#include <halftone/kernel/layer_norm/layer_norm.hpp>
#include <halftone/kernel/rows/care_device.hpp>
#include <halftone/kernel/rows/device.hpp>
#include <halftone/kernel/rows/spaced.hpp>

namespace halftone::inline HALFTONE_ABI::kernel {

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

/// dx = rstd (dy gain - mean(dy gain) - xhat mean(dy gain xhat)), row by row.
template <class X, class W, class Y, int N, int Threads, int Held>
struct layer_norm_dx_kernel {
    using team = row_team<Threads>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const X> x;
    global_span<const W> gain;
    global_span<const Y> dy;
    global_span<const float> mean, rstd;
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
        const standard_row standard(simt.load(mean, row), scale);
        const auto steps = row_steps<N, Threads, Held>::over(me, width, to.data, values.data, incoming.data, gain.data);
        const row_values<X, N, Threads, Held> v(simt, steps, values);
        const row_values<Y, N, Threads, Held> d(simt, steps, incoming);
        row_terms r{standard, scale, 0, 0};
        steps.each_or_zeros(
            [&](const auto& place) { r.add(place, v.at(simt, place), d.at(simt, place), place.load(simt, gain)); });
        r.sum = team::sum(simt, r.sum, constant<0>{}) / static_cast<float>(width);
        r.along = team::sum(simt, r.along, constant<1>{}) / static_cast<float>(width);
        steps.each([&](const auto& place) {
            write(simt, place, to, r, v.at(simt, place), d.at(simt, place), place.load(simt, gain));
        });
    }

  private:
    struct row_terms {
        standard_row standard;
        float scale;
        float sum, along;  // of dy gain, and of dy gain xhat; then their means

        template <int M>
        HALFTONE_HD HALFTONE_INLINE void add(const row_place<M>& place, const vec<float, M>& v, const vec<float, M>& d,
                                             const vec<float, M>& g) {
            standard_row mine = standard;
            if (!place.is_there) mine.scale = 0;  // 0 less a large mean, times scale, may be no number
            float some = 0, some_along = 0;
            HALFTONE_UNROLL for (int e = 0; e < M; ++e) {
                const float weighted = d[e] * g[e];
                some += weighted;
                some_along += weighted * mine(v[e]);
            }
            sum += some;
            along += some_along;
        }
    };
    HALFTONE_KERNEL template <class Simt, int M>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, const row_place<M>& place, const global_span<X>& to,
                                           const row_terms& r, const vec<float, M>& v, const vec<float, M>& d,
                                           const vec<float, M>& g) const {
        vec<float, M> out = mode == write_mode::add ? place.load(simt, to) : vec<float, M>{};
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) out[e] +=
            (d[e] * g[e] - r.sum - r.standard(v[e]) * r.along) * r.scale;
        place.store(simt, to, out);
    }
};

/// For each piece of rows and each column: the sums of dy xhat and of dy.
template <class X, class Y, int N>
struct layer_norm_sums_kernel {
    using team = column_team<N, 2>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const X> x;
    global_span<const Y> dy;
    global_span<const float> mean, rstd;
    global_span<float> dgain, dbias;  // (pieces, width), or none
    row_pieces cut;
    extent width, x_stride, dy_stride;

    grid_shape grid() const { return team::grid(width, cut.count); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent j = team::column(simt), first = cut.begin(simt.block().y),
                     end = first + cut.rows_of(simt.block().y);
        vec<float, N> gain_sums{}, bias_sums{};
        if (j < width) {
            for (extent row = first + simt.warp(); row < end; row += team::warps) {
                const vec<float, N> d = load_floats<N>(simt, dy.from(row * dy_stride + j), 0),
                                    v = load_floats<N>(simt, x.from(row * x_stride + j), 0);
                const standard_row standard(simt.load(mean, row), simt.load(rstd, row));
                HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
                    gain_sums[e] += d[e] * standard(v[e]);
                    bias_sums[e] += d[e];
                }
            }
        }
        team::leave(simt, 0, gain_sums);
        team::leave(simt, 1, bias_sums);
        simt.barrier();
        team::write(simt, 0, dgain, width);
        team::write(simt, 1, dbias, width);
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
        using namespace on_device;
        const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
        const row_pieces cut = on_device::cut_rows_for_sums(rows);
        const bool gain_wanted = a.dgain.data() != nullptr, bias_wanted = a.dbias.data() != nullptr;
        const extent floats = cut.count * width;
        const workspace::lease partials(device.scratch(),
                                        static_cast<std::size_t>((gain_wanted + bias_wanted) * floats) * sizeof(float));
        float* const dgain = gain_wanted ? partials.as<float>() : nullptr;
        float* const dbias = bias_wanted ? partials.as<float>() + (gain_wanted ? floats : 0) : nullptr;
        // Before dx, which may lie where dy does.
        if (gain_wanted || bias_wanted) {
            const auto sum = [&]<int N>(constant<N>) {
                device.launch(layer_norm_sums_kernel<X, Y, N>{.x = simt::hull_of(a.x),
                                                              .dy = simt::hull_of(a.dy),
                                                              .mean = simt::span_of(a.mean),
                                                              .rstd = simt::span_of(a.rstd),
                                                              .dgain = {dgain, floats},
                                                              .dbias = {dbias, floats},
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
            device.launch(layer_norm_dx_kernel<X, W, Y, N, Threads, Held>{.x = simt::hull_of(a.x),
                                                                          .gain = simt::span_of(a.gain),
                                                                          .dy = simt::hull_of(a.dy),
                                                                          .mean = simt::span_of(a.mean),
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
        if (gain_wanted) add_partials(device, cut.count, dgain, width, width, a.dgain.data(), a.parameter_mode);
        if (bias_wanted) add_partials(device, cut.count, dbias, width, width, a.dbias.data(), a.parameter_mode);
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel
