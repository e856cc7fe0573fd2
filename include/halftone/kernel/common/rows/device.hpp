// SPDX-License-Identifier: MIT
/// \file
/// What row-wise kernels on a GPU share: vectors of 16 bytes, how a team of threads iterates over a row and reduces
/// over it, and sums over rows by way of partial sums.
///
///     using team = on_device::row_team<32>;                                  // a row for each warp
///     const auto steps = on_device::row_steps<n, 32, held>::over(team::member(simt), width, from.data, to.data);
///     const on_device::row_values<T, n, 32, held> values(simt, steps, from);  // in registers if held > 0
///     steps.each_or_zeros([&](const auto& place) { sum += of(values.at(simt, place)); });
///     sum = team::sum(simt, sum, constant<0>{});
///     steps.each([&](const auto& place) { place.store(simt, to, with(values.at(simt, place), sum)); });
///
/// Numeric contract: as rows.hpp says for the CPU. The partition depends on the shape alone; a term of a row's sum
/// passes through at most sum_depth(width) additions in float that add something other than zero.
#pragma once

#include <algorithm>

#include <halftone/exec/simt/reduce.hpp>
#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/common/rows/partition.hpp>
#include <halftone/kernel/write_mode.hpp>
#include <halftone/number/in_float.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

using simt::constant, simt::global_span, simt::grid_shape, simt::packed, simt::shared_span, simt::vec, simt::word;
using simt::run_part;  // for unqualified calls; a thread handle may have an overload

/// The number of elements in the widest vector that has at most 16 bytes in each of these types.
template <class... Ts>
inline constexpr int widest = 16 / static_cast<int>(std::max({sizeof(Ts)...}));

/// The number of elements in 16 bytes of the smallest of these types; for the others it is several vectors.
template <class... Ts>
inline constexpr int longest = 16 / static_cast<int>(std::min({sizeof(Ts)...}));

/// Whether n elements of T can be loaded at this address, as one vector or as several of 16 bytes.
template <class T>
HALFTONE_HD bool starts_vector(const T* p, int n) {
    const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(T);
    return reinterpret_cast<std::uintptr_t>(p) % (bytes < 16 ? bytes : 16) == 0;
}

/// Whether rows of this width can be processed in vectors of n elements at all these pointers; null pointers are
/// ignored.
template <class... Ts>
bool can_use_vectors(int n, extent width, const Ts*... pointers) {
    return width % n == 0 && (starts_vector(pointers, n) && ...);
}

template <class T, int N>
HALFTONE_HD HALFTONE_INLINE vec<float, N> to_float(const vec<T, N>& v) {
    vec<float, N> f;
    HALFTONE_UNROLL for (int e = 0; e < N; ++e) f[e] = detail::in_float(v[e]);
    return f;
}
template <class T, int N>
HALFTONE_HD HALFTONE_INLINE vec<T, N> round_to(const vec<float, N>& f) {
    vec<T, N> v;
    HALFTONE_UNROLL for (int e = 0; e < N; ++e) v[e] = T(f[e]);
    return v;
}
/// The number of elements of T in one access, out of N.
template <class T, int N>
inline constexpr int at_once = N * sizeof(T) <= 16 ? N : 16 / static_cast<int>(sizeof(T));

/// N elements of a row, starting at vector number i.
HALFTONE_KERNEL template <int N, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE vec<std::remove_const_t<T>, N> load_elements(Simt simt, const global_span<T>& row,
                                                                         extent i) {
    constexpr int some = at_once<T, N>, parts = N / some;
    vec<std::remove_const_t<T>, N> v;
    HALFTONE_UNROLL for (int p = 0; p < parts; ++p) {
        const vec<std::remove_const_t<T>, some> part = simt.load(simt::as_vectors<some>(row), i * parts + p);
        HALFTONE_UNROLL for (int e = 0; e < some; ++e) v[p * some + e] = part[e];
    }
    return v;
}
/// One thread's vectors of a row, number `me` and every Threads-th from there; zeros beyond the row's end. A separate
/// loop of loads, so that all are issued before the first is used.
HALFTONE_KERNEL template <int Threads, class Simt, class T, class Plain, int N, int Held>
HALFTONE_HD HALFTONE_INLINE void hold(Simt simt, const global_span<T>& row, int me, extent vectors,
                                      vec<Plain, N> (&held)[Held]) {
    HALFTONE_UNROLL for (int i = 0; i < Held; ++i) held[i] =
        me + i * Threads < vectors ? load_elements<N>(simt, row, me + i * Threads) : vec<Plain, N>{};
}
template <int N, class T>
struct floats_part {
    global_span<T> row;
    extent i;

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE vec<float, N> operator()(Simt simt) const {
        return to_float(load_elements<N>(simt, row, i));
    }
};
template <int N, class T>
struct rounding_part {
    global_span<T> row;
    extent i;
    const vec<float, N>& v;

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void operator()(Simt simt) const {
        constexpr int some = at_once<T, N>, parts = N / some;
        HALFTONE_UNROLL for (int p = 0; p < parts; ++p) {
            vec<T, some> part;
            HALFTONE_UNROLL for (int e = 0; e < some; ++e) part[e] = T(v[p * some + e]);
            simt.store(simt::as_vectors<some>(row), i * parts + p, part);
        }
    }
};
/// N elements of a row, vector number i, converted to floats.
HALFTONE_KERNEL template <int N, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE vec<float, N> load_floats(Simt simt, const global_span<T>& row, extent i) {
    return run_part(simt, floats_part<N, T>{row, i});
}
HALFTONE_KERNEL template <int N, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE void store_rounded(Simt simt, const global_span<T>& row, extent i, const vec<float, N>& v) {
    run_part(simt, rounding_part<N, T>{row, i, v});
}

/// A row as a head of single elements, aligned vectors of N, and a tail of single elements. Items 0 to vectors - 1 are
/// the vectors of row.from(head); the others are the row's remaining elements.
template <int N>
struct row_walk {
    extent head, vectors, width;

    /// The walk over several rows of the same width. If they cannot be aligned together, there are no vectors.
    template <class First, class... Others>
    HALFTONE_HD HALFTONE_INLINE static row_walk over(extent width, const First* first, const Others*... others) {
        extent head = 0;
        while (head < N && !starts_vector(first + head, N)) ++head;
        const bool together = head < N && head + N <= width && (others_start(others, head) && ...);
        return {together ? head : 0, together ? (width - head) / N : 0, width};
    }
    HALFTONE_HD extent items() const { return width - vectors * (N - 1); }
    HALFTONE_HD extent edge(extent item) const {
        const extent k = item - vectors;
        return k < head ? k : k + vectors * N;
    }

  private:
    template <class T>
    HALFTONE_HD HALFTONE_INLINE static bool others_start(const T* row, extent head) {
        return row == nullptr || starts_vector(row + head, N);
    }
};

/// The position of one step: vector number `index` of N elements in any row of the walk, counted from element `head`.
template <int N>
struct row_place {
    extent head, index;
    int held;       // the number of the thread's vector, for rows held in registers
    bool is_there;  // false beyond the row's end

    /// The elements of a row at this position; zeros beyond its end.
    HALFTONE_KERNEL template <class Simt, class T>
    HALFTONE_HD HALFTONE_INLINE vec<float, N> load(Simt simt, const global_span<T>& row) const {
        return is_there ? load_floats<N>(simt, row.from(head), index) : vec<float, N>{};
    }
    HALFTONE_KERNEL template <class Simt, class T>
    HALFTONE_HD HALFTONE_INLINE void store(Simt simt, const global_span<T>& row, const vec<float, N>& v) const {
        store_rounded<N>(simt, row.from(head), index, v);
    }
};

/// The steps in which one thread of a team iterates over rows of one width: vectors of N elements, and single elements
/// where vectors are not aligned. With Held > 0 rows consist of vectors only, at most Held for a thread, and the loops
/// are unrolled.
template <int N, int Threads, int Held>
struct row_steps {
    int me;
    row_walk<N> walk;

    /// The steps over rows that begin at these pointers; null pointers are ignored.
    template <class... Ts>
    HALFTONE_HD HALFTONE_INLINE static row_steps over(int me, extent width, const Ts*... rows) {
        if constexpr (Held > 0) {
            return {me, {0, width / N, width}};
        } else {
            return {me, row_walk<N>::over(width, rows...)};
        }
    }
    /// Calls step with each row_place, of N elements or of 1.
    template <class Step>
    HALFTONE_HD HALFTONE_INLINE void each(const Step& step) const {
        if constexpr (Held > 0) {
            HALFTONE_UNROLL for (int i = 0; i < Held; ++i) {
                if (me + i * Threads < walk.vectors) step(row_place<N>{0, me + i * Threads, i, true});
            }
        } else {
            for (extent k = me; k < walk.items(); k += Threads) {
                if (k < walk.vectors) {
                    step(row_place<N>{walk.head, k, 0, true});
                } else {
                    step(row_place<1>{0, walk.edge(k), 0, true});
                }
            }
        }
    }
    /// Calls step with each row_place, for sums: a thread with fewer than Held vectors takes additional steps over
    /// zeros, so that no load depends on a branch.
    template <class Step>
    HALFTONE_HD HALFTONE_INLINE void each_or_zeros(const Step& step) const {
        if constexpr (Held > 0) {
            HALFTONE_UNROLL for (int i = 0; i < Held; ++i) {
                step(row_place<N>{0, me + i * Threads, i, me + i * Threads < walk.vectors});
            }
        } else {
            each(step);
        }
    }
};

/// One thread's part of a row: with Held > 0 loaded once, into registers; otherwise loaded in each step.
template <class T, int N, int Threads, int Held>
struct row_values {
    global_span<const T> row;
    vec<T, N> held[Held > 0 ? Held : 1];

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE row_values(Simt simt, const row_steps<N, Threads, Held>& steps,
                                           const global_span<const T>& from)
        : row(from) {
        if constexpr (Held > 0) hold<Threads>(simt, from, steps.me, steps.walk.vectors, held);
    }
    HALFTONE_KERNEL template <class Simt, int M>
    HALFTONE_HD HALFTONE_INLINE vec<float, M> at(Simt simt, const row_place<M>& place) const {
        if constexpr (Held > 0) {
            return to_float(held[place.held]);
        } else {
            return place.load(simt, row);
        }
    }
};

/// `Threads` threads process a row together: a warp of a block of four rows, or a whole block. Threads is 32 or a
/// multiple of 128. `Slots` is the number of reductions, each with its own constant as index and one barrier.
template <int Threads, int Slots = 2>
struct row_team {
    static constexpr int row_threads = Threads, rows_in_block = Threads == 32 ? 4 : 1;
    static constexpr int block_threads = Threads * rows_in_block;
    static constexpr word slot_bytes = Threads / 32 * sizeof(float);
    static constexpr word shared_bytes = Threads == 32 ? 0 : Slots * slot_bytes;
    static_assert(Threads == 32 || Threads % 128 == 0);

    static grid_shape grid(extent rows) { return simt::blocks_for(rows, rows_in_block); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static extent row(Simt simt) {
        return static_cast<extent>(simt.block().x) * rows_in_block + (Threads == 32 ? simt.warp() : 0);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static int member(Simt simt) {
        return Threads == 32 ? simt.lane() : simt.thread();
    }
    /// A reduction; the result has the same bits in every thread.
    HALFTONE_KERNEL template <int Slot, class Simt, class Combine>
    HALFTONE_HD HALFTONE_INLINE static float reduce(Simt simt, float mine, constant<Slot>, Combine combine) {
        static_assert(Slot < Slots);
        mine = simt::warp_reduce(simt, mine, combine);
        if constexpr (Threads == 32) {
            return mine;
        } else {
            if (simt.lane() == 0) simt.store(slot(Slot), simt.warp(), mine);
            simt.barrier();
            return combined(simt, Slot, combine);
        }
    }
    HALFTONE_KERNEL template <int Slot, class Simt>
    HALFTONE_HD HALFTONE_INLINE static float sum(Simt simt, float mine, constant<Slot> at) {
        return reduce(simt, mine, at, simt::plus{});
    }
    /// Several sums with one barrier, in slots `first` to first + K - 1. Each result has the bits of sum().
    HALFTONE_KERNEL template <int K, class Simt>
    HALFTONE_HD HALFTONE_INLINE static vec<float, K> sums(Simt simt, vec<float, K> mine, word first = 0) {
        static_assert(K <= Slots);
        HALFTONE_UNROLL for (int mask = 16; mask > 0; mask /= 2) {
            HALFTONE_UNROLL for (int k = 0; k < K; ++k) mine[k] += simt.shuffle_xor(mine[k], mask);
        }
        if constexpr (Threads != 32) {
            HALFTONE_UNROLL for (int k = 0; k < K; ++k) {
                if (simt.lane() == 0) simt.store(slot(first + k), simt.warp(), mine[k]);
            }
            simt.barrier();
            HALFTONE_UNROLL for (int k = 0; k < K; ++k) mine[k] = combined(simt, first + k, simt::plus{});
        }
        return mine;
    }
    HALFTONE_KERNEL template <int Slot, class Simt>
    HALFTONE_HD HALFTONE_INLINE static float max(Simt simt, float mine, constant<Slot> at) {
        return reduce(simt, mine, at, simt::maximum{});
    }

  private:
    HALFTONE_HD HALFTONE_INLINE static shared_span<float> slot(word number) {
        return {number * slot_bytes, Threads / 32};
    }
    /// The warps' values in a slot, combined in order, four at a time.
    HALFTONE_KERNEL template <class Simt, class Combine>
    HALFTONE_HD HALFTONE_INLINE static float combined(Simt simt, word number, Combine combine) {
        constexpr word fours = Threads / 128;
        float all = 0;
        HALFTONE_UNROLL for (word i = 0; i < fours; ++i) {
            const vec<float, 4> four = simt.load(shared_span<vec<float, 4>>{number * slot_bytes, fours}, i);
            const float some = combine(combine(four[0], four[1]), combine(four[2], four[3]));
            all = i == 0 ? some : combine(all, some);
        }
        return all;
    }
};

/// What a thread of a warp holds of a row in registers, and of a block of 128 threads: 32 elements, in vectors of N.
template <int N>
inline constexpr int held_vectors = 32 / N;
inline constexpr extent held_by_warp = 1024, held_by_block = 4096;  // elements

/// Wide blocks. A thread holds 64 bytes of a row whose elements are the largest of Ts, in vectors of N: two rows of
/// 16,384 elements of 16 bits take 64 KB of shared memory (copied.hpp), which every GPU has.
inline constexpr int wide_threads = 512;
template <int N, class... Ts>
inline constexpr int held_by_wide_thread = std::max(1, 64 / (N * static_cast<int>(std::max({sizeof(Ts)...}))));

/// Calls launch(N, Threads, Held), as constants, for rows of this width and these types at these pointers: a row is
/// held by a warp, by a block of BlockThreads threads, or by a wide block, a thread of which holds WideHeld vectors; or
/// it is streamed by 256 threads (Held = 0).
template <int BlockThreads, int WideHeld, class... Ts, class Launch, class... Pointers>
void choose_team(extent width, const Launch& launch, const Pointers*... pointers) {
    constexpr int n = longest<Ts...>;
    const bool vectors = can_use_vectors(n, width, pointers...);
    if (vectors && width <= held_by_warp) {
        launch(constant<n>{}, constant<32>{}, constant<held_vectors<n>>{});
    } else if (vectors && width <= held_by_block) {
        launch(constant<n>{}, constant<BlockThreads>{}, constant<held_vectors<n> * 128 / BlockThreads>{});
    } else if (vectors && width <= wide_threads * WideHeld * n) {
        launch(constant<n>{}, constant<wide_threads>{}, constant<WideHeld>{});
    } else {
        launch(constant<n>{}, constant<256>{}, constant<0>{});
    }
}

/// A block of eight warps processes 32 * N columns: each warp every eighth row, each lane N consecutive columns, for
/// which it has `Sums` sums.
template <int N, int Sums>
struct column_team {
    static constexpr int warps = 8, block_threads = 32 * warps, columns = 32 * N;
    static constexpr word shared_bytes = Sums * warps * columns * sizeof(float);

    /// The grid: columns along x, pieces of rows along y.
    static grid_shape grid(extent width, extent pieces) {
        return {simt::blocks_for(width, columns).x, static_cast<int>(pieces), 1};
    }

    /// The lane's first column.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static extent column(Simt simt) {
        return static_cast<extent>(simt.block().x) * columns + simt.lane() * N;
    }
    /// Stores all sums of all lanes to shared memory; `total` then adds those of the warps in order.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void leave(Simt simt, int which, const vec<float, N>& sums) {
        constexpr int some = N < 4 ? N : 4;
        HALFTONE_UNROLL for (int p = 0; p < N / some; ++p) {
            vec<float, some> part;
            HALFTONE_UNROLL for (int e = 0; e < some; ++e) part[e] = sums[p * some + e];
            simt.store(shared_span<vec<float, some>>{0, shared_bytes / sizeof(part)},
                       ((which * warps + simt.warp()) * columns + simt.lane() * N) / some + p, part);
        }
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static float total(Simt simt, int which, int c) {
        float sum = 0;
        HALFTONE_UNROLL for (int w = 0; w < warps; ++w) {
            sum += simt.load(shared_span<float>{0, shared_bytes / sizeof(float)}, (which * warps + w) * columns + c);
        }
        return sum;
    }
    /// After a barrier: stores the block's sums to row `piece` of a matrix of partial sums, if there is one.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void write(Simt simt, int which, const global_span<float>& partials,
                                                  extent width) {
        if (!partials.is_there()) return;
        const extent first = static_cast<extent>(simt.block().x) * columns;
        for (int c = simt.thread(); c < columns; c += block_threads) {
            if (first + c < width) simt.store(partials, simt.block().y * width + first + c, total(simt, which, c));
        }
    }
};

/// out[j] = (or +=) the sum over pieces of partials[piece * stride + j]: eight sums of every eighth piece, then their
/// sum. For two matrices of partial sums the grid has two rows.
template <class G>
struct add_partials_kernel {
    using team = column_team<1, 1>;
    static constexpr int threads = team::block_threads;
    static constexpr word shared_bytes = team::shared_bytes;

    global_span<const float> partials, more_partials;
    extent pieces, stride;
    global_span<G> out, more_out;
    write_mode mode;

    grid_shape grid() const { return team::grid(out.count, more_out.is_there() ? 2 : 1); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const bool is_first = simt.block().y == 0;
        const global_span<const float> from = is_first ? partials : more_partials;
        const global_span<G> to = is_first ? out : more_out;
        const extent j = team::column(simt);
        vec<float, 1> sum{};
        if (j < to.count) sum[0] = sum_of_pieces(simt, from.from(j), simt.warp());
        team::leave(simt, 0, sum);
        simt.barrier();
        if (simt.warp() != 0 || j >= to.count) return;
        float all = team::total(simt, 0, simt.lane());
        if (mode == write_mode::add) all += detail::in_float(simt.load(to, j));
        simt.store(to, j, G(all));
    }

  private:
    /// The sum of the pieces' partial sums in their order, but with many loads in flight: a warp waits for memory once
    /// or twice.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE float sum_of_pieces(Simt simt, const global_span<const float>& column,
                                                    extent first) const {
        constexpr int together = 16;
        float sum = 0;
        for (extent piece = first; piece < pieces; piece += together * team::warps) {
            float some[together];
            HALFTONE_UNROLL for (int i = 0; i < together; ++i) {
                const extent one = piece + i * team::warps;
                some[i] = one < pieces ? simt.load(column, one * stride) : 0.0f;
            }
            HALFTONE_UNROLL for (int i = 0; i < together; ++i) sum += some[i];
        }
        return sum;
    }
};

template <simt_device Device, class G>
void add_partials(Device& device, extent pieces, const float* partials, extent stride, extent width, G* out,
                  write_mode mode) {
    const extent floats = pieces * stride;
    device.launch(add_partials_kernel<G>{{partials, floats}, {}, pieces, stride, {out, width}, {}, mode});
}
/// Adds the partial sums of two outputs, of which a null one is not wanted.
template <simt_device Device, class G>
void add_partials(Device& device, extent pieces, const float* partials, const float* more, extent stride, extent width,
                  G* out, G* more_out, write_mode mode) {
    if (out == nullptr && more_out == nullptr) return;
    if (out == nullptr) return add_partials(device, pieces, more, stride, width, more_out, mode);
    if (more_out == nullptr) return add_partials(device, pieces, partials, stride, width, out, mode);
    const extent floats = pieces * stride;
    device.launch(add_partials_kernel<G>{
        {partials, floats}, {more, floats}, pieces, stride, {out, width}, {more_out, width}, mode});
}

/// The partition for sums over rows: as many pieces as blocks that keep a GPU busy, but at least 16 rows in a piece.
inline row_partition partition_rows_for_sums(extent rows) {
    constexpr extent most_pieces = 256, least_rows = 16;
    extent each = detail::ceil_div(rows, most_pieces);
    if (each < least_rows) each = least_rows;
    return {rows, each, detail::ceil_div(rows, each)};
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
