// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of norms that reads x and dy once: a block processes a piece of rows, computes their dx and keeps
/// the sums of all columns over them. norm/device/backward.hpp launches it.
///
/// Each thread copies its elements of the rows to come to shared memory, so that loads are in flight while it computes.
/// Gains stay in shared memory, too.
#pragma once

#include <algorithm>

#include <halftone/kernel/common/rows/copied.hpp>
#include <halftone/kernel/common/rows/device.hpp>
#include <halftone/kernel/norm/device/gradients.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// One thread's elements of the next `Stages` rows of x and dy, in shared memory.
template <class X, class Y, int N, int Threads, int Held, int Stages>
struct coming_rows {
    using row_of_x = copied_row<X, N, Threads, Held>;
    using row_of_dy = copied_row<Y, N, Threads, Held>;
    static constexpr word stage_bytes = row_of_x::bytes + row_of_dy::bytes, bytes = Stages * stage_bytes;

    word base;        // in bytes
    int me, vectors;  // of a row

    HALFTONE_HD HALFTONE_INLINE bool has(int held) const { return me + held * Threads < vectors; }
    HALFTONE_HD HALFTONE_INLINE row_of_x x(int stage) const {
        return {base + static_cast<word>(stage) * stage_bytes, me};
    }
    HALFTONE_HD HALFTONE_INLINE row_of_dy dy(int stage) const { return {x(stage).base + row_of_x::bytes, me}; }
    /// Begins to copy a row.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void request(Simt simt, int stage, const global_span<const X>& from_x,
                                             const global_span<const Y>& from_dy) const {
        HALFTONE_UNROLL for (int h = 0; h < Held; ++h) {
            if (has(h)) {
                x(stage).request(simt, h, from_x);
                dy(stage).request(simt, h, from_dy);
            }
        }
    }
};

/// Vectors of N floats of each of `Threads` threads, `Held` for each, in shared memory: consecutive threads access
/// consecutive groups of four.
template <int N, int Threads, int Held>
struct shared_floats {
    static constexpr word bytes = Held * N * Threads * sizeof(float);

    word base;  // in bytes
    int me;

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE vec<float, N> load(Simt simt, int held) const {
        vec<float, N> v;
        HALFTONE_UNROLL for (int f = 0; f < N / 4; ++f) {
            const vec<float, 4> four = simt.load(fours(), place(held, f));
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) v[4 * f + e] = four[e];
        }
        return v;
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void store(Simt simt, int held, const vec<float, N>& v) const {
        HALFTONE_UNROLL for (int f = 0; f < N / 4; ++f) {
            simt.store(fours(), place(held, f), vec<float, 4>{v[4 * f], v[4 * f + 1], v[4 * f + 2], v[4 * f + 3]});
        }
    }

  private:
    HALFTONE_HD HALFTONE_INLINE shared_span<vec<float, 4>> fours() const { return {base, bytes / 16}; }
    HALFTONE_HD HALFTONE_INLINE word place(int held, int f) const {
        return static_cast<word>((held * (N / 4) + f) * Threads + me);
    }
};

/// How many rows of each team a block has in shared memory at a time: as many as take at most 32 KB, or 8 KB for each
/// of eight warps, but at least one. Two blocks then fit into the 164 KB of an A100's multiprocessor, and one into the 99
/// KB that every GPU has.
template <class X, class Y, int N, int Threads, int Held>
inline constexpr int piece_stages = std::max(1, (Threads == 32 ? 8 : 32) * 1024 /
                                                    static_cast<int>(coming_rows<X, Y, N, Threads, Held, 1>::bytes));

/// dx of a piece of rows a block, and the sums over them. As in norm_sums_kernel there are eight sums of every eighth
/// row, each in its order, and then their sum: eight warps have one each, or a block computes one after the other. A
/// thread of a block holds a row in registers while it computes, and requests another one in its place; a warp, whose
/// sums take 64 registers, reads its row from shared memory twice.
template <class Row, class X, class W, class Y, int N, int Threads, int Held,
          int Stages = piece_stages<X, Y, N, Threads, Held>>
struct norm_piece_kernel {
    using team = row_team<Threads, 2 * Row::sums>;  // of two consecutive rows, so that one barrier a row suffices
    using columns = column_team<N, Row::sums>;
    using ring = coming_rows<X, Y, N, Threads, Held, Stages>;
    using floats = shared_floats<N, Threads, Held>;
    static constexpr bool by_warps = Threads == 32;
    static constexpr int chains = columns::warps, teams = by_warps ? chains : 1, threads = Threads * teams;
    static constexpr int min_blocks = 2;                          // a multiprocessor: 128 registers a thread
    static constexpr int ahead = by_warps ? Stages - 1 : Stages;  // rows requested while one is computed
    static constexpr word gains_at = team::shared_bytes, totals_at = gains_at + floats::bytes,
                          ring_at = totals_at + (by_warps ? 0 : Row::sums * floats::bytes),
                          used = ring_at + teams * ring::bytes;
    static constexpr word shared_bytes = std::max(used, by_warps ? columns::shared_bytes : 0);
    static_assert(Held > 0);

    norm_gradients<X, W, Y> of;
    row_partition partition;
    global_span<float> dgain, dbias;  // (pieces, width), or empty

    grid_shape grid() const { return {static_cast<int>(partition.count), 1, 1}; }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        const int me = team::member(simt);
        const ring rows{ring_at + (by_warps ? static_cast<word>(simt.warp()) * ring::bytes : 0), me,
                        static_cast<int>(of.width / N)};
        const floats gains{gains_at, me};
        const extent first = partition.begin(simt.block().x), end = first + partition.rows_of(simt.block().x);
        row_order now{first, end, first + (by_warps ? simt.warp() : 0), 0}, next = now;
        for (int stage = 0; stage < ahead; ++stage) request(simt, rows, stage, next);
        keep_gains(simt, rows, gains);
        column_sums s = {};
        row_statistics mine = statistics(simt, now);
        word odd = 0;
        for (int stage = 0; now.is_there(); stage = stage + 1 == Stages ? 0 : stage + 1, odd = 1 - odd) {
            if constexpr (by_warps) request(simt, rows, stage == 0 ? Stages - 1 : stage - 1, next);
            simt.async_wait(constant<Stages - 1>{});
            const row_order present = now;
            now.step();
            const row_statistics coming = statistics(simt, now);
            take(simt, rows, stage, next, present.row, Row(mine.mean, mine.rstd), odd, gains, s);
            mine = coming;
            if constexpr (!by_warps) {
                if (now.chain != present.chain) {
                    add_to_totals(simt, present.chain, me, s);
                    s = {};
                }
            }
        }
        if constexpr (by_warps) {
            join_warps(simt, s);
        } else {
            write_totals(simt, me);
        }
    }

  private:
    struct column_sums {
        vec<float, N> of_gain[Held], of_bias[Row::sums == 2 ? Held : 1];
    };
    struct row_statistics {
        float mean, rstd;
    };
    /// The order of a team's rows: those of its chain, or of one chain after the other.
    struct row_order {
        extent first, end, row;
        int chain;

        HALFTONE_HD HALFTONE_INLINE bool is_there() const { return row < end; }
        HALFTONE_HD HALFTONE_INLINE void step() {
            row += chains;
            if (by_warps || row < end) return;
            ++chain;
            row = chain < chains ? first + chain : end;
        }
    };
    /// Each thread of a block stores its gains; for warps, which have the same ones, warp after warp stores a vector of them.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void keep_gains(Simt simt, const ring& rows, const floats& gains) const {
        HALFTONE_UNROLL for (int h = 0; h < Held; ++h) {
            if (rows.has(h) && (!by_warps || simt.warp() == h % chains))
                gains.store(simt, h, load_floats<N>(simt, of.gain, rows.me + h * Threads));
        }
        if constexpr (by_warps) simt.barrier();
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE row_statistics statistics(Simt simt, const row_order& at) const {
        if (!at.is_there()) return {};
        return {Row::has_mean ? simt.load(of.mean, at.row) : 0, simt.load(of.rstd, at.row)};
    }
    /// Begins to copy the next row, if there is one, and closes a group of copies.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void request(Simt simt, const ring& rows, int stage, row_order& next) const {
        if (next.is_there()) {
            rows.request(simt, stage, of.x.part(next.row * of.x_stride, of.width),
                         of.dy.part(next.row * of.dy_stride, of.width));
            next.step();
        }
        simt.async_commit();
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void take(Simt simt, const ring& rows, int stage, row_order& next, extent row, Row r,
                                          word odd, const floats& gains, column_sums& s) const {
        if constexpr (by_warps) {
            HALFTONE_UNROLL for (int h = 0; h < Held; ++h) {
                if (rows.has(h))
                    r.add(true, to_float(rows.x(stage).read(simt, h)), to_float(rows.dy(stage).read(simt, h)),
                          gains.load(simt, h));
            }
            r.template take_means<team>(simt, of.width);
            simt.warp_barrier();  // without it the compiler would hold what the loop above has read
            HALFTONE_UNROLL for (int h = 0; h < Held; ++h) {
                if (rows.has(h))
                    finish(simt, row, rows.me, h, r, to_float(rows.x(stage).read(simt, h)),
                           to_float(rows.dy(stage).read(simt, h)), gains, s);
            }
        } else {
            vec<X, N> x[Held];
            vec<Y, N> dy[Held];
            HALFTONE_UNROLL for (int h = 0; h < Held; ++h) {
                if (rows.has(h)) x[h] = rows.x(stage).read(simt, h), dy[h] = rows.dy(stage).read(simt, h);
            }
            request(simt, rows, stage, next);
            HALFTONE_UNROLL for (int h = 0; h < Held; ++h) {
                if (rows.has(h)) r.add(true, to_float(x[h]), to_float(dy[h]), gains.load(simt, h));
            }
            r.template take_means<team>(simt, of.width, odd * Row::sums);
            HALFTONE_UNROLL for (int h = 0; h < Held; ++h) {
                if (rows.has(h)) finish(simt, row, rows.me, h, r, to_float(x[h]), to_float(dy[h]), gains, s);
            }
        }
    }
    /// Writes dx of a thread's vector, and adds it to the sums over rows.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void finish(Simt simt, extent row, int me, int held, const Row& r,
                                            const vec<float, N>& v, const vec<float, N>& d, const floats& gains,
                                            column_sums& s) const {
        of.write(simt, row, row_place<N>{0, me + held * Threads, held, true}, r, v, d, gains.load(simt, held));
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
            s.of_gain[held][e] += d[e] * r.xhat(v[e]);
            if constexpr (Row::sums == 2) s.of_bias[held][e] += d[e];
        }
    }

    /// Adds the warps' sums, some columns at a time.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void join_warps(Simt simt, const column_sums& s) const {
        HALFTONE_UNROLL for (int h = 0; h < Held; ++h) {
            const extent first = static_cast<extent>(h) * columns::columns;
            if (first < of.width) {
                simt.barrier();
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

    /// A thread's totals of its columns, which no other thread accesses.
    HALFTONE_HD HALFTONE_INLINE static floats totals(int which, int me) {
        return {totals_at + static_cast<word>(which) * floats::bytes, me};
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void add_to_totals(Simt simt, int chain, int me, const column_sums& s) {
        HALFTONE_UNROLL for (int h = 0; h < Held; ++h) {
            add(simt, chain, h, totals(0, me), s.of_gain[h]);
            if constexpr (Row::sums == 2) add(simt, chain, h, totals(1, me), s.of_bias[h]);
        }
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void add(Simt simt, int chain, int held, const floats& to,
                                                const vec<float, N>& sums) {
        vec<float, N> total = chain == 0 ? vec<float, N>{} : to.load(simt, held);
        HALFTONE_UNROLL for (int e = 0; e < N; ++e) total[e] += sums[e];
        to.store(simt, held, total);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void write_totals(Simt simt, int me) const {
        write_total(simt, totals(0, me), dgain);
        if constexpr (Row::sums == 2) write_total(simt, totals(1, me), dbias);
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void write_total(Simt simt, const floats& from,
                                                 const global_span<float>& partials) const {
        if (!partials.is_there()) return;
        const global_span<float> row = partials.part(simt.block().x * of.width, of.width);
        HALFTONE_UNROLL for (int h = 0; h < Held; ++h) {
            const extent vector = from.me + h * Threads;
            if (vector * N < of.width) store_rounded<N>(simt, row, vector, from.load(simt, h));
        }
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
