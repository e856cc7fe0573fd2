// SPDX-License-Identifier: MIT
/// \file
/// What row-wise kernels on a GPU share: how a group of threads walks a row in vectors, and sums over rows by way of
/// partial sums.
///
///     rows_device<Threads>::for_row(simt, width, [&](extent j, auto n) { ... });
///
/// Numeric contract: as rows.hpp has it for the CPU. A cut follows from the shape alone; a term of a row's sum passes
/// through at most sum_depth(width) additions in float.
#pragma once

#include <algorithm>

#include <halftone/exec/simt/reduce.hpp>
#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/rows/cut.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone::inline HALFTONE_ABI::kernel::on_device {

using simt::constant, simt::global_span, simt::grid_shape, simt::shared_span, simt::vec, simt::word;

/// Elements in the widest vector whose parts of all these types have at most 16 bytes.
template <class... Ts>
inline constexpr int widest = 16 / static_cast<int>(std::max({sizeof(Ts)...}));

/// Whether rows of this width can be walked in vectors of n elements at all these pointers. Null pointers are.
template <class... Ts>
bool can_use_vectors(int n, extent width, const Ts*... pointers) {
    return width % n == 0 && (simt::is_aligned(pointers, static_cast<std::size_t>(n) * sizeof(Ts)) && ...);
}

template <class T, int N>
HALFTONE_HD HALFTONE_INLINE vec<float, N> to_float(const vec<T, N>& v) {
    vec<float, N> f;
    HALFTONE_UNROLL for (int e = 0; e < N; ++e) f[e] = static_cast<float>(v[e]);
    return f;
}
template <class T, int N>
HALFTONE_HD HALFTONE_INLINE vec<T, N> round_to(const vec<float, N>& f) {
    vec<T, N> v;
    HALFTONE_UNROLL for (int e = 0; e < N; ++e) v[e] = T(f[e]);
    return v;
}
/// N elements as floats, from vector number i of a row on.
HALFTONE_KERNEL template <int N, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE vec<float, N> load_floats(Simt simt, const global_span<T>& row, extent i) {
    return to_float(simt.load(simt::as_vectors<N>(row), i));
}
HALFTONE_KERNEL template <int N, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE void store_rounded(Simt simt, const global_span<T>& row, extent i, const vec<float, N>& v) {
    simt.store(simt::as_vectors<N>(row), i, round_to<T>(v));
}

/// `Threads` threads together take a row: a warp of a block of four rows, or a whole block. Threads is 32 or a multiple.
template <int Threads>
struct row_team {
    static constexpr int rows_in_block = Threads == 32 ? 4 : 1;
    static constexpr int block_threads = Threads * rows_in_block;
    static constexpr word shared_bytes = Threads == 32 ? 0 : Threads / 32 * sizeof(float);

    static grid_shape grid(extent rows) { return simt::blocks_for(rows, rows_in_block); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static extent row(Simt simt) {
        return static_cast<extent>(simt.block().x) * rows_in_block + (Threads == 32 ? simt.warp() : 0);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static int member(Simt simt) {
        return Threads == 32 ? simt.lane() : simt.thread();
    }
    /// The same bits in every member.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static float sum(Simt simt, float mine) {
        if constexpr (Threads == 32) {
            return simt::warp_sum(simt, mine);
        } else {
            return simt::block_sum<Threads>(simt, mine, shared_span<float>{0, Threads / 32});
        }
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static float max(Simt simt, float mine) {
        if constexpr (Threads == 32) {
            return simt::warp_max(simt, mine);
        } else {
            return simt::block_max<Threads>(simt, mine, shared_span<float>{0, Threads / 32});
        }
    }
};

/// out[j] = (or +=) the sum over pieces of partials[piece * stride + j], in the order of the pieces.
template <class G>
struct add_partials_kernel {
    static constexpr int threads = 128;
    static constexpr word shared_bytes = 0;

    global_span<const float> partials;
    extent pieces, stride;
    global_span<G> out;
    write_mode mode;

    grid_shape grid() const { return simt::blocks_for(out.count, threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const extent j = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (j >= out.count) return;
        float sum = 0;
        for (extent piece = 0; piece < pieces; ++piece) sum += simt.load(partials, piece * stride + j);
        if (mode == write_mode::add) sum += static_cast<float>(simt.load(out, j));
        simt.store(out, j, G(sum));
    }
};

template <simt_device Device, class G>
void add_partials(Device& device, extent pieces, const float* partials, extent stride, extent width, G* out, write_mode mode) {
    device.launch(add_partials_kernel<G>{{partials, pieces * stride}, pieces, stride, {out, width}, mode});
}

/// The cut for sums over rows: as many pieces as blocks keep a GPU busy, none of fewer than 16 rows.
inline row_pieces cut_rows_for_sums(extent rows) {
    constexpr extent most_pieces = 256, least_rows = 16;
    extent each = (rows + most_pieces - 1) / most_pieces;
    if (each < least_rows) each = least_rows;
    return {rows, each, (rows + each - 1) / each};
}

}  // namespace halftone::inline HALFTONE_ABI::kernel::on_device
