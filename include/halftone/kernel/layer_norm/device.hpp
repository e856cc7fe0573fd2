// SPDX-License-Identifier: MIT
/// \file
/// Layer normalisation on a GPU; layer_norm.hpp has its arguments, its contract and an example.
///
/// A row of up to 32 * held * vector elements is held in registers by a warp and read once; a wider one is walked by a
/// block, whose second and third reading come from the cache. The backward pass takes two kernels: one over rows for dx,
/// one over columns for the partial sums of dgain and dbias, which are then added in the order of the pieces.
#pragma once

#include <cmath>

#include <halftone/kernel/layer_norm/layer_norm.hpp>
#include <halftone/kernel/rows/device.hpp>

namespace halftone::inline HALFTONE_ABI::kernel {

namespace on_device {

/// One row by `Threads` threads in vectors of N; `Held` vectors a thread stay in registers, 0: none.
template <class X, class W, class Y, int N, int Threads, int Held>
struct layer_norm_kernel {
    using team = row_team<Threads>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const X> x;
    global_span<const W> gain, bias;
    global_span<Y> y;
    global_span<float> mean, rstd;
    extent rows, width;
    float epsilon;

    grid_shape grid() const { return team::grid(rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= rows) return;  // the whole team goes, so that no word of a warp or block misses a thread
        const extent vectors = width / N;
        const auto from = x.part(row * width, width);
        const auto to = y.part(row * width, width);
        const int me = team::member(simt);

        vec<float, N> held[Held > 0 ? Held : 1];
        float sum = 0;
        if constexpr (Held > 0) {
            HALFTONE_UNROLL for (int i = 0; i < Held; ++i) {
                held[i] = me + i * Threads < vectors ? load_floats<N>(simt, from, me + i * Threads) : vec<float, N>{};
                HALFTONE_UNROLL for (int e = 0; e < N; ++e) sum += held[i][e];
            }
        } else {
            for (extent i = me; i < vectors; i += Threads) {
                const vec<float, N> v = load_floats<N>(simt, from, i);
                HALFTONE_UNROLL for (int e = 0; e < N; ++e) sum += v[e];
            }
        }
        const float average = team::sum(simt, sum) / static_cast<float>(width);

        float squares = 0;
        if constexpr (Held > 0) {
            HALFTONE_UNROLL for (int i = 0; i < Held; ++i) {
                if (me + i * Threads < vectors) squares += squares_around(average, held[i]);
            }
        } else {
            for (extent i = me; i < vectors; i += Threads) squares += squares_around(average, load_floats<N>(simt, from, i));
        }
        const float scale = 1 / std::sqrt(team::sum(simt, squares) / static_cast<float>(width) + epsilon);

        if constexpr (Held > 0) {
            HALFTONE_UNROLL for (int i = 0; i < Held; ++i) {
                if (me + i * Threads < vectors) write(simt, to, me + i * Threads, held[i], average, scale);
            }
        } else {
            for (extent i = me; i < vectors; i += Threads) write(simt, to, i, load_floats<N>(simt, from, i), average, scale);
        }
        if (me == 0) {
            if (mean.is_there()) simt.store(mean, row, average);
            if (rstd.is_there()) simt.store(rstd, row, scale);
        }
    }

  private:
    HALFTONE_HD HALFTONE_INLINE static float squares_around(float average, const vec<float, N>& v) {
        float squares = 0;
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) squares += (v[e] - average) * (v[e] - average);
        return squares;
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void write(Simt simt, const global_span<Y>& to, extent i, const vec<float, N>& v, float average, float scale) const {
        const vec<float, N> g = load_floats<N>(simt, gain, i);
        const vec<float, N> b = bias.is_there() ? load_floats<N>(simt, bias, i) : vec<float, N>{};
        vec<float, N> out;
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) out[e] = (v[e] - average) * scale * g[e] + b[e];
        store_rounded<N>(simt, to, i, out);
    }
};

/// dx = rstd (dy gain - mean(dy gain) - xhat mean(dy gain xhat)), row by row.
template <class X, class W, class Y, int N, int Threads>
struct layer_norm_dx_kernel {
    using team = row_team<Threads>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const X> x;
    global_span<const W> gain;
    global_span<const Y> dy;
    global_span<const float> mean, rstd;
    global_span<X> dx;
    extent rows, width;
    write_mode mode;

    grid_shape grid() const { return team::grid(rows); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent row = team::row(simt);
        if (row >= rows) return;
        const extent vectors = width / N;
        const auto values = x.part(row * width, width);
        const auto incoming = dy.part(row * width, width);
        const auto to = dx.part(row * width, width);
        const float average = simt.load(mean, row), scale = simt.load(rstd, row);
        const int me = team::member(simt);

        float sum = 0, along = 0;
        for (extent i = me; i < vectors; i += Threads) {
            const vec<float, N> v = load_floats<N>(simt, values, i), d = load_floats<N>(simt, incoming, i), g = load_floats<N>(simt, gain, i);
            HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
                const float weighted = d[e] * g[e];
                sum += weighted;
                along += weighted * ((v[e] - average) * scale);
            }
        }
        sum = team::sum(simt, sum) / static_cast<float>(width);
        along = team::sum(simt, along) / static_cast<float>(width);

        for (extent i = me; i < vectors; i += Threads) {
            const vec<float, N> v = load_floats<N>(simt, values, i), d = load_floats<N>(simt, incoming, i), g = load_floats<N>(simt, gain, i);
            vec<float, N> out = mode == write_mode::add ? load_floats<N>(simt, global_span<const X>{to.data, to.count}, i) : vec<float, N>{};
            HALFTONE_UNROLL for (int e = 0; e < N; ++e) out[e] += (d[e] * g[e] - sum - (v[e] - average) * scale * along) * scale;
            store_rounded<N>(simt, to, i, out);
        }
    }
};

/// For each piece of rows and each column: the sums of dy xhat and of dy.
template <class X, class Y>
struct layer_norm_sums_kernel {
    static constexpr int threads = 128;
    static constexpr word shared_bytes = 0;

    global_span<const X> x;
    global_span<const Y> dy;
    global_span<const float> mean, rstd;
    global_span<float> dgain, dbias;  // (pieces, width), or none
    row_pieces cut;
    extent width;

    grid_shape grid() const { return {simt::blocks_for(width, threads).x, static_cast<int>(cut.count), 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent j = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (j >= width) return;
        const extent piece = simt.block().y, first = cut.begin(piece), end = first + cut.rows_of(piece);
        float gain_sum = 0, bias_sum = 0;
        for (extent row = first; row < end; ++row) {
            const float d = static_cast<float>(simt.load(dy, row * width + j));
            const float v = static_cast<float>(simt.load(x, row * width + j));
            gain_sum += d * ((v - simt.load(mean, row)) * simt.load(rstd, row));
            bias_sum += d;
        }
        if (dgain.is_there()) simt.store(dgain, piece * width + j, gain_sum);
        if (dbias.is_there()) simt.store(dbias, piece * width + j, bias_sum);
    }
};

}  // namespace on_device

template <simt_device Device>
struct layer_norm<Device> {
    template <class X, class W, class Y>
    static void forward(Device& device, const layer_norm_forward<X, W, Y>& a) {
        check(a);
        using namespace on_device;
        constexpr int n = widest<X, W, Y>, held = 4;
        const extent width = a.x.extent_of(1);
        const auto launch = [&]<int N, int Threads, int Held>(constant<N>, constant<Threads>, constant<Held>) {
            device.launch(layer_norm_kernel<X, W, Y, N, Threads, Held>{
                simt::span_of(a.x), simt::span_of(a.gain), {a.bias.data(), width}, simt::span_of(a.y), {a.mean.data(), a.x.extent_of(0)},
                {a.rstd.data(), a.x.extent_of(0)}, a.x.extent_of(0), width, a.epsilon});
        };
        if (!can_use_vectors(n, width, a.x.data(), a.gain.data(), a.bias.data(), a.y.data())) {
            launch(constant<1>{}, constant<256>{}, constant<0>{});
        } else if (width <= 32 * n * held) {
            launch(constant<n>{}, constant<32>{}, constant<held>{});
        } else {
            launch(constant<n>{}, constant<256>{}, constant<0>{});
        }
    }

    template <class X, class W, class Y, class G>
    static void backward(Device& device, const layer_norm_backward<X, W, Y, G>& a) {
        check(a);
        using namespace on_device;
        constexpr int n = widest<X, W, Y>;
        const extent rows = a.x.extent_of(0), width = a.x.extent_of(1);
        const row_pieces cut = on_device::cut_rows_for_sums(rows);
        const bool gain_wanted = a.dgain.data() != nullptr, bias_wanted = a.dbias.data() != nullptr;
        const extent floats = cut.count * width;
        const workspace::lease partials(device.scratch(), static_cast<std::size_t>((gain_wanted + bias_wanted) * floats) * sizeof(float));
        float* const dgain = gain_wanted ? partials.as<float>() : nullptr;
        float* const dbias = bias_wanted ? partials.as<float>() + (gain_wanted ? floats : 0) : nullptr;
        // Before dx, which may lie where dy does.
        if (gain_wanted || bias_wanted) {
            device.launch(layer_norm_sums_kernel<X, Y>{simt::span_of(a.x), simt::span_of(a.dy), simt::span_of(a.mean), simt::span_of(a.rstd),
                                                       {dgain, floats}, {dbias, floats}, cut, width});
        }
        const auto launch = [&]<int N, int Threads>(constant<N>, constant<Threads>) {
            device.launch(layer_norm_dx_kernel<X, W, Y, N, Threads>{simt::span_of(a.x), simt::span_of(a.gain), simt::span_of(a.dy), simt::span_of(a.mean),
                                                                    simt::span_of(a.rstd), simt::span_of(a.dx), rows, width, a.dx_mode});
        };
        if (!can_use_vectors(n, width, a.x.data(), a.gain.data(), a.dy.data(), a.dx.data())) {
            launch(constant<1>{}, constant<256>{});
        } else if (width <= 32 * n * 8) {
            launch(constant<n>{}, constant<32>{});
        } else {
            launch(constant<n>{}, constant<256>{});
        }
        if (gain_wanted) add_partials(device, cut.count, dgain, width, width, a.dgain.data(), a.parameter_mode);
        if (bias_wanted) add_partials(device, cut.count, dbias, width, width, a.dbias.data(), a.parameter_mode);
    }
};

}  // namespace halftone::inline HALFTONE_ABI::kernel
