// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of layer and root mean square normalisation on a GPU, in the same code; the two differ in what they
/// compute for a row.
///
///     norm_backward(device, a);               // a: kernel::layer_norm_backward or kernel::rms_norm_backward
///
/// If gradients of gain and bias are wanted, rows fit into registers and there are enough of them, a block processes a
/// piece of rows one after the other: it reads x and dy once, writes dx, and keeps the sums of all columns over its
/// rows in registers. Otherwise there are two kernels, one over rows for dx and one over columns for these sums, and x
/// and dy are read twice. The pieces' sums are then added.
///
/// Numeric contract: both ways add in the same order, so that the choice changes no bits.
#pragma once

#include <halftone/exec/simt/architecture.hpp>
#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/common/rows/strided.hpp>
#include <halftone/kernel/norm/care/device.hpp>
#include <halftone/kernel/norm/norm.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// What a row's gradient needs: reductions over the row, and a function of each element and these.
template <bool Centred>
struct norm_row;

/// Layer norm: dx = rstd (dy gain - mean(dy gain) - xhat mean(dy gain xhat)), xhat = (x - mean) rstd.
template <>
struct norm_row<true> {
    static constexpr int sums = 2;  // over rows, of dy xhat and dy: the gradients of gain and bias
    static constexpr bool has_mean = true;

    standard_row standard;
    float scale;
    float sum = 0, along = 0;  // sums of dy gain and of dy gain xhat; then their means

    HALFTONE_HD HALFTONE_INLINE norm_row(float mean, float rstd) : standard(mean, rstd), scale(rstd) {}

    template <int M>
    HALFTONE_HD HALFTONE_INLINE void add(const row_place<M>& place, const vec<float, M>& v, const vec<float, M>& d,
                                         const vec<float, M>& g) {
        standard_row mine = standard;
        if (!place.is_there) mine.scale = 0;  // (0 - a large mean) times scale may be NaN
        float some = 0, some_along = 0;
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) {
            const float weighted = d[e] * g[e];
            some += weighted;
            some_along += weighted * mine(v[e]);
        }
        sum += some;
        along += some_along;
    }
    HALFTONE_KERNEL template <class Team, class Simt>
    HALFTONE_HD HALFTONE_INLINE void take_means(Simt simt, extent width) {
        sum = Team::sum(simt, sum, constant<0>{}) / static_cast<float>(width);
        along = Team::sum(simt, along, constant<1>{}) / static_cast<float>(width);
    }
    HALFTONE_HD HALFTONE_INLINE float xhat(float v) const { return standard(v); }
    HALFTONE_HD HALFTONE_INLINE float dx(float v, float d, float g) const {
        return (d * g - sum - standard(v) * along) * scale;
    }
};

/// RMS norm: dx = rstd (dy gain - xhat mean(dy gain xhat)), xhat = x rstd.
template <>
struct norm_row<false> {
    static constexpr int sums = 1;  // over rows, of dy xhat: the gradient of gain
    static constexpr bool has_mean = false;

    float scale;
    float along = 0;

    HALFTONE_HD HALFTONE_INLINE norm_row(float, float rstd) : scale(rstd) {}

    template <int M>
    HALFTONE_HD HALFTONE_INLINE void add(const row_place<M>&, const vec<float, M>& v, const vec<float, M>& d,
                                         const vec<float, M>& g) {
        float some = 0;
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) some += d[e] * g[e] * (v[e] * scale);
        along += some;
    }
    HALFTONE_KERNEL template <class Team, class Simt>
    HALFTONE_HD HALFTONE_INLINE void take_means(Simt simt, extent width) {
        along = Team::sum(simt, along, constant<0>{}) / static_cast<float>(width);
    }
    HALFTONE_HD HALFTONE_INLINE float xhat(float v) const { return v * scale; }
    HALFTONE_HD HALFTONE_INLINE float dx(float v, float d, float g) const {
        return (d * g - v * scale * along) * scale;
    }
};

/// The kernels' arguments. Without a mean: nothing is subtracted.
template <class X, class W, class Y>
struct norm_gradients {
    global_span<const X> x;
    global_span<const W> gain;
    global_span<const Y> dy;
    global_span<const float> mean, rstd;
    global_span<X> dx;
    extent rows, width, x_stride, dy_stride, dx_stride;
    write_mode mode;

    HALFTONE_KERNEL template <class Row, class Simt>
    HALFTONE_HD HALFTONE_INLINE Row row_of(Simt simt, extent row) const {
        const float scale = simt.load(rstd, row);
        if constexpr (Row::has_mean) return {simt.load(mean, row), scale};
        return {0, scale};
    }
    /// Computes dx of a row. Calls seen(held, v, d, row) with a thread's x and dy, vector by vector.
    HALFTONE_KERNEL template <class Row, class Team, int N, int Threads, int Held, class Simt, class Seen>
    HALFTONE_HD HALFTONE_INLINE void take(Simt simt, extent row, const Seen& seen) const {
        const auto values = x.part(row * x_stride, width);
        const auto incoming = dy.part(row * dy_stride, width);
        const auto to = dx.part(row * dx_stride, width);
        const int me = Team::member(simt);
        Row r = row_of<Row>(simt, row);
        const auto steps = row_steps<N, Threads, Held>::over(me, width, to.data, values.data, incoming.data, gain.data);
        const row_values<X, N, Threads, Held> v(simt, steps, values);
        const row_values<Y, N, Threads, Held> d(simt, steps, incoming);
        steps.each_or_zeros(
            [&](const auto& place) { r.add(place, v.at(simt, place), d.at(simt, place), place.load(simt, gain)); });
        r.template take_means<Team>(simt, width);
        steps.each([&](const auto& place) {
            write(simt, place, to, r, v.at(simt, place), d.at(simt, place));
            seen(place.held, v.at(simt, place), d.at(simt, place), r);
        });
    }

  private:
    HALFTONE_KERNEL template <class Simt, class Row, int M>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, const row_place<M>& place, const global_span<X>& to, const Row& r,
                                           const vec<float, M>& v, const vec<float, M>& d) const {
        const vec<float, M> g = place.load(simt, gain);
        vec<float, M> out = mode == write_mode::add ? place.load(simt, to) : vec<float, M>{};
        HALFTONE_UNROLL for (int e = 0; e < M; ++e) out[e] += r.dx(v[e], d[e], g[e]);
        place.store(simt, to, out);
    }
};

/// dx, by rows.
template <class Row, class X, class W, class Y, int N, int Threads, int Held>
struct norm_dx_kernel {
    using team = row_team<Threads, Row::sums>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    norm_gradients<X, W, Y> of;

    grid_shape grid() const { return team::grid(of.rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= of.rows) return;
        of.template take<Row, team, N, Threads, Held>(simt, row, [](int, const auto&, const auto&, const Row&) {});
    }
};

/// For each piece of rows and each column, the sums of dy xhat and, if there is a bias, of dy.
template <class Row, class X, class W, class Y, int N>
struct norm_sums_kernel {
    using team = column_team<N, Row::sums>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    norm_gradients<X, W, Y> of;
    row_partition partition;
    global_span<float> dgain, dbias;  // (pieces, width), or empty

    grid_shape grid() const { return team::grid(of.width, partition.count); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent j = team::column(simt), first = partition.begin(simt.block().y),
                     end = first + partition.rows_of(simt.block().y);
        vec<float, N> gain_sums{}, bias_sums{};
        if (j < of.width) {
            for (extent row = first + simt.warp(); row < end; row += team::warps) {
                const vec<float, N> d = load_floats<N>(simt, of.dy.from(row * of.dy_stride + j), 0),
                                    v = load_floats<N>(simt, of.x.from(row * of.x_stride + j), 0);
                const Row r = of.template row_of<Row>(simt, row);
                HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
                    gain_sums[e] += d[e] * r.xhat(v[e]);
                    if constexpr (Row::sums == 2) bias_sums[e] += d[e];
                }
            }
        }
        team::leave(simt, 0, gain_sums);
        if constexpr (Row::sums == 2) team::leave(simt, 1, bias_sums);
        simt.barrier();
        team::write(simt, 0, dgain, of.width);
        if constexpr (Row::sums == 2) team::write(simt, 1, dbias, of.width);
    }
};

/// Both in one kernel, a piece of rows a block. As in norm_sums_kernel there are eight sums of every eighth row, each
/// in its order, and then their sum: eight warps have one each, or a block computes one after the other.
template <class Row, class X, class W, class Y, int N, int Threads, int Held>
struct norm_piece_kernel {
    using team = row_team<Threads, Row::sums>;
    using columns = column_team<N, Row::sums>;
    static constexpr int chains = columns::warps, warps = Threads == 32 ? chains : Threads / 32, threads = 32 * warps;
    static constexpr int min_blocks = 1;  // without it ptxas limits registers for more blocks, and spills
    static constexpr word totals_bytes = Row::sums * Held * Threads * N * sizeof(float);
    static constexpr word shared_bytes = Threads == 32 ? columns::shared_bytes : team::shared_bytes + totals_bytes;
    static_assert(Held > 0);

    norm_gradients<X, W, Y> of;
    row_partition partition;
    global_span<float> dgain, dbias;  // (pieces, width), or empty

    grid_shape grid() const { return {static_cast<int>(partition.count), 1, 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent first = partition.begin(simt.block().x), end = first + partition.rows_of(simt.block().x);
        if constexpr (Threads == 32) {
            column_sums s = {};
            for (extent row = first + simt.warp(); row < end; row += chains) take(simt, row, s);
            join_warps(simt, s);
        } else {
            for (int chain = 0; chain < chains; ++chain) {
                column_sums s = {};
                for (extent row = first + chain; row < end; row += chains) take(simt, row, s);
                add_to_totals(simt, chain, s);
            }
            write_totals(simt);
        }
    }

  private:
    struct column_sums {
        vec<float, N> of_gain[Held], of_bias[Row::sums == 2 ? Held : 1];
    };

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void take(Simt simt, extent row, column_sums& s) const {
        of.template take<Row, team, N, Threads, Held>(
            simt, row, [&](int held, const vec<float, N>& v, const vec<float, N>& d, const Row& r) {
                HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
                    s.of_gain[held][e] += d[e] * r.xhat(v[e]);
                    if constexpr (Row::sums == 2) s.of_bias[held][e] += d[e];
                }
            });
        if constexpr (Threads != 32 && Row::sums == 1) simt.barrier();  // all threads have read the results of the reduction
    }

    /// Adds the warps' sums, some columns at a time.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void join_warps(Simt simt, const column_sums& s) const {
        HALFTONE_UNROLL for (int h = 0; h < Held; ++h) {
            const extent first = static_cast<extent>(h) * columns::columns;
            if (first < of.width) {
                if (h > 0) simt.barrier();
                columns::leave(simt, 0, s.of_gain[h]);
                if constexpr (Row::sums == 2) columns::leave(simt, 1, s.of_bias[h]);
                simt.barrier();
                write_joined(simt, 0, first, dgain);
                if constexpr (Row::sums == 2) write_joined(simt, 1, first, dbias);
            }
        }
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void write_joined(Simt simt, int which, extent first,
                                                  const global_span<float>& partials) const {
        if (!partials.is_there()) return;
        for (int c = simt.thread(); c < columns::columns; c += threads) {
            if (first + c < of.width)
                simt.store(partials, simt.block().x * of.width + first + c, columns::total(simt, which, c));
        }
    }

    /// A thread's totals of its columns, which no other thread accesses; consecutive threads access consecutive groups
    /// of four.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static word place_of_four(Simt simt, int which, int held, int four_vectors) {
        return static_cast<word>(((which * Held + held) * (N / 4) + four_vectors) * Threads + simt.thread());
    }
    HALFTONE_HD HALFTONE_INLINE static shared_span<vec<float, 4>> totals() {
        return {team::shared_bytes, totals_bytes / sizeof(vec<float, 4>)};
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void add_to_totals(Simt simt, int chain, const column_sums& s) {
        HALFTONE_UNROLL for (int h = 0; h < Held; ++h) {
            HALFTONE_UNROLL for (int f = 0; f < N / 4; ++f) {
                add_four(simt, chain, place_of_four(simt, 0, h, f), s.of_gain[h], f);
                if constexpr (Row::sums == 2) add_four(simt, chain, place_of_four(simt, 1, h, f), s.of_bias[h], f);
            }
        }
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void add_four(Simt simt, int chain, word place, const vec<float, N>& sums,
                                                     int four_vectors) {
        vec<float, 4> total = chain == 0 ? vec<float, 4>{} : simt.load(totals(), place);
        HALFTONE_UNROLL for (int e = 0; e < 4; ++e) total[e] += sums[four_vectors * 4 + e];
        simt.store(totals(), place, total);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void write_totals(Simt simt) const {
        write_total(simt, 0, dgain);
        if constexpr (Row::sums == 2) write_total(simt, 1, dbias);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void write_total(Simt simt, int which, const global_span<float>& partials) const {
        if (!partials.is_there()) return;
        const auto fours = simt::as_vectors<4>(partials.part(simt.block().x * of.width, of.width));
        HALFTONE_UNROLL for (int h = 0; h < Held; ++h) {
            const extent vector = simt.thread() + h * Threads;
            HALFTONE_UNROLL for (int f = 0; f < N / 4; ++f) {
                if (vector * N < of.width)
                    simt.store(fours, vector * (N / 4) + f, simt.load(totals(), place_of_four(simt, which, h, f)));
            }
        }
    }
};

/// Whether this number of blocks, with so many warps that each process rows one after the other, saturates a GPU's
/// memory bandwidth.
inline bool pieces_keep_busy(const simt::architecture& gpu, extent pieces, int warps) {
    constexpr extent warps_wanted = 6;  // a multiprocessor, each with loads of a row of x and one of dy in flight
    return pieces * warps >= gpu.multiprocessors * warps_wanted;
}

template <class Device, class Arguments>
void norm_backward(Device& device, const Arguments& a) {
    using Row = norm_row<is_centred<Arguments>>;
    using X = typename decltype(a.x)::value_type;
    using W = typename decltype(a.gain)::value_type;
    using Y = typename decltype(a.dy)::value_type;
    const auto bias = dbias_of(a);
    const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
    const row_partition partition = on_device::partition_rows_for_sums(rows);
    const bool gain_wanted = a.dgain.data() != nullptr, bias_wanted = bias.data() != nullptr;
    const extent floats = partition.count * width;
    const workspace::lease partials(device.scratch(),
                                    static_cast<std::size_t>((gain_wanted + bias_wanted) * floats) * sizeof(float));
    const global_span<float> dgain{gain_wanted ? partials.as<float>() : nullptr, floats},
        dbias{bias_wanted ? partials.as<float>() + (gain_wanted ? floats : 0) : nullptr, floats};
    const norm_gradients<X, W, Y> all{.x = simt::bounding_span_of(a.x),
                                      .gain = simt::span_of(a.gain),
                                      .dy = simt::bounding_span_of(a.dy),
                                      .mean = simt::span_of(mean_of(a)),
                                      .rstd = simt::span_of(a.rstd),
                                      .dx = simt::bounding_span_of(a.dx),
                                      .rows = rows,
                                      .width = width,
                                      .x_stride = a.x.stride_of(0),
                                      .dy_stride = a.dy.stride_of(0),
                                      .dx_stride = a.dx.stride_of(0),
                                      .mode = a.dx_mode};
    const auto sum_columns = [&] {
        constexpr int n = longest<X, Y>;
        const bool aligned = can_use_vectors(n, width, a.x.data(), second_row(a.x), a.dy.data(), second_row(a.dy));
        if (aligned) return device.launch(norm_sums_kernel<Row, X, W, Y, n>{all, partition, dgain, dbias});
        device.launch(norm_sums_kernel<Row, X, W, Y, 1>{all, partition, dgain, dbias});
    };
    const auto launch = [&]<int N, int Threads, int Held>(constant<N>, constant<Threads>, constant<Held>) {
        if (gain_wanted || bias_wanted) {
            if constexpr (Held > 0) {
                using kernel = norm_piece_kernel<Row, X, W, Y, N, Threads, Held>;
                if (pieces_keep_busy(device.architecture(), partition.count, kernel::warps))
                    return device.launch(kernel{all, partition, dgain, dbias});
            }
            sum_columns();  // before dx, which may be the memory of dy
        }
        device.launch(norm_dx_kernel<Row, X, W, Y, N, Threads, Held>{all});
    };
    choose_team<X, W, Y>(width, launch, a.x.data(), second_row(a.x), a.gain.data(), a.dy.data(), second_row(a.dy),
                         a.dx.data(), second_row(a.dx));
    if (gain_wanted) add_partials(device, partition.count, dgain.data, width, width, a.dgain.data(), a.parameter_mode);
    if (bias_wanted) add_partials(device, partition.count, dbias.data, width, width, bias.data(), a.parameter_mode);
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
