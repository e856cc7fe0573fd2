// SPDX-License-Identifier: MIT
/// \file
/// A product on a GPU's matrix units by mma.sync: operands of 16 or 8 bits, or floats rounded to tfloat32; sums in
/// float.
///
/// A block computes a tile of c. Its loop over the depth uses a ring buffer in shared memory, whose slots hold one
/// panel of a and one of b each. A warp loads its fragments, 32 bytes deep, into registers one step before it
/// multiplies them. The last step of a panel advances the ring:
///
///     wait      until this thread's copies of the next panel have arrived
///     barrier   then everyone's have arrived, and everyone has read the current panel, so that its slot is free
///     fetch     starts copying the panel `ahead` further on into that slot
///
/// At the end a warp stores its sums to shared memory and reads them back, so that the epilogue gets eight consecutive
/// elements of a row at a time, or, if rows of c are unaligned, consecutive lanes get consecutive columns.
///
/// Numeric contract: floats are rounded to tfloat32 as they are loaded into registers. Panels are padded with zeros.
/// Products are added in the order of k, sixteen at a time, for floats eight. A matrix unit may truncate where it adds:
/// u is 2^-23 in the bound of matmul.hpp. 8-bit products are summed 32 at a time by the matrix unit, which may keep no
/// more than 14 bits; these sums are then added in float. The tiling does not change bits.
#pragma once

#include <halftone/kernel/matmul/device/finish.hpp>
#include <halftone/kernel/matmul/device/panel.hpp>
#include <halftone/kernel/matmul/device/staged_rows.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// How a block's tile is distributed over its warps, and the number of slots in its ring.
template <int TileM, int TileN, int Depth, int WarpsM, int WarpsN, int Stages>
struct matrix_unit_tiling {
    static constexpr int tile_m = TileM, tile_n = TileN, depth = Depth;
    static constexpr int warps_n = WarpsN, threads = 32 * WarpsM * WarpsN;
    static constexpr int warp_m = TileM / WarpsM, warp_n = TileN / WarpsN;
    static constexpr int stages = Stages, ahead = Stages;
    template <class T, int Outer, along Axis>
    using panel = matrix_panel<T, Outer, Depth, Axis>;
    static_assert(warp_m % 16 == 0 && (warp_m & (warp_m - 1)) == 0 && warp_n % 16 == 0 && (warp_n & (warp_n - 1)) == 0,
                  "see fragment");
    static_assert(Stages >= 2);
};

/// In place of a compute type: multiplies 8-bit operands, possibly of two different types, as they are.
struct eight_bits {};

/// The type of an operand of T in a panel.
template <class Compute, class T>
struct in_panel {
    using type = storage_of<Compute>;
};
template <class T>
struct in_panel<eight_bits, T> {
    using type = T;
};

/// The sums of a block's tile over some panels, in its warps' registers.
template <class Compute, class Tiling, panel_load Load, class A, class B>
struct matrix_unit_sums {
    using tiling = Tiling;
    static constexpr int threads = tiling::threads;
    static constexpr int blocks_m = tiling::warp_m / 16,
                         blocks_n = tiling::warp_n / 8;  // blocks of mma in a warp's part
    using stored = typename in_panel<Compute, A>::type;  // the type in shared memory
    using stored_b = typename in_panel<Compute, B>::type;
    static constexpr bool is_of_bytes = std::is_same_v<Compute, eight_bits>;
    static_assert(sizeof(stored) == sizeof(stored_b) && is_of_bytes == (sizeof(stored) == 1));
    static constexpr int step = 32 / static_cast<int>(sizeof(stored)), steps = tiling::depth / step;
    static_assert(tiling::depth % step == 0 && steps % 2 == 0, "two sets of fragments take turns");
    static constexpr word a_bytes = tiling::tile_m * tiling::depth * sizeof(stored),
                          slot_bytes = a_bytes + tiling::tile_n * tiling::depth * sizeof(stored),
                          shared_bytes = tiling::stages * slot_bytes;
    using accumulators = vec<float, 4>[blocks_m][blocks_n];

    const product_operand<A>& a;
    const product_operand<B>& b;
    tile_place first;
    int first_panel, panels;
    accumulators& sums;

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void operator()(Simt simt) const {
        // A loop for each pair of layouts: one kernel, whose loops know their layouts at compile time.
        if (a.axis == along::depth) {
            if (b.axis == along::depth) {
                add_up<along::depth, along::depth>(simt);
            } else {
                add_up<along::depth, along::outer>(simt);
            }
        } else if (b.axis == along::depth) {
            add_up<along::outer, along::depth>(simt);
        } else {
            add_up<along::outer, along::outer>(simt);
        }
    }

    /// The position of a warp's part in the tile.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static tile_place first_of_warp(Simt simt) {
        return {simt.warp() / tiling::warps_n * tiling::warp_m, simt.warp() % tiling::warps_n * tiling::warp_n};
    }

  private:
    /// The operands of one step of a warp.
    struct fragments {
        vec<word, 4> a[blocks_m], b[blocks_n / 2];
    };

    HALFTONE_KERNEL template <along AxisA, along AxisB, class Simt>
    HALFTONE_HD HALFTONE_INLINE void add_up(Simt simt) const {
        using a_panel = typename tiling::template panel<stored, tiling::tile_m, AxisA>;
        using b_panel = typename tiling::template panel<stored_b, tiling::tile_n, AxisB>;
        panel_fetch<a_panel, threads, Load, A> fetch_a(simt, a, first.row, first_panel * tiling::depth);
        panel_fetch<b_panel, threads, Load, B> fetch_b(simt, b, first.column, first_panel * tiling::depth);
        const tile_place mine = first_of_warp(simt);
        const word my_a = a_panel::template place_of_lane<operand_of_mma::a>(simt, mine.row);
        const word my_b = b_panel::template place_of_lane<operand_of_mma::b>(simt, mine.column);

        if (panels == 0) return;
        // Panels that are complete, from the first on.
        const int whole = first.row + tiling::tile_m <= a.outer && first.column + tiling::tile_n <= b.outer
                              ? a.depth / tiling::depth - first_panel
                              : 0;
        for (int i = 0; i < tiling::ahead; ++i) {
            const word slot = static_cast<word>(i % tiling::stages) * slot_bytes;
            begin_fetch(simt, i < panels, i < whole, slot, fetch_a, fetch_b);
            end_fetch(simt, i < panels, slot, fetch_a, fetch_b);
        }
        wait<tiling::ahead - 1>(simt);
        simt.barrier();

        fragments held[2];
        read<a_panel, b_panel>(simt, 0, my_a, my_b, 0, held[0]);
        word slot = 0;
        for (int i = 0; i < panels; ++i) {
            const word next = slot + slot_bytes < tiling::stages * slot_bytes ? slot + slot_bytes : 0;
            const bool comes = i + tiling::ahead < panels;
            HALFTONE_UNROLL for (int s = 0; s < steps; ++s) {
                if (s + 1 < steps) {
                    read<a_panel, b_panel>(simt, slot, my_a, my_b, step * (s + 1), held[(s + 1) % 2]);
                } else if (i + 1 < panels) {
                    wait<tiling::ahead - 2>(simt);
                    simt.barrier();
                    read<a_panel, b_panel>(simt, next, my_a, my_b, 0, held[0]);
                    begin_fetch(simt, comes, i + tiling::ahead < whole, slot, fetch_a, fetch_b);
                }
                multiply(simt, held[s % 2], sums);
            }
            end_fetch(simt, comes, slot, fetch_a, fetch_b);
            slot = next;
        }
    }

    template <int Pending, class Simt>
    HALFTONE_HD HALFTONE_INLINE static void wait(Simt simt) {
        if constexpr (Load == panel_load::direct) simt.async_wait(constant<Pending>{});
    }
    HALFTONE_KERNEL template <class Simt, class FetchA, class FetchB>
    HALFTONE_HD HALFTONE_INLINE static void begin_fetch(Simt simt, bool comes, bool is_whole, word slot,
                                                        FetchA& fetch_a, FetchB& fetch_b) {
        if (comes) {
            fetch_a.begin(simt, slot, is_whole);
            fetch_b.begin(simt, slot + a_bytes, is_whole);
        }
        if constexpr (Load == panel_load::direct)
            simt.async_commit();  // also past the end: waits count groups, even empty ones
    }
    HALFTONE_KERNEL template <class Simt, class FetchA, class FetchB>
    HALFTONE_HD HALFTONE_INLINE static void end_fetch(Simt simt, bool comes, word slot, const FetchA& fetch_a,
                                                      const FetchB& fetch_b) {
        if (!comes) return;
        fetch_a.end(simt, slot);
        fetch_b.end(simt, slot + a_bytes);
    }

    HALFTONE_KERNEL template <class PanelA, class PanelB, class Simt>
    HALFTONE_HD HALFTONE_INLINE static void read(Simt simt, word slot, word my_a, word my_b, int depth, fragments& to) {
        HALFTONE_UNROLL for (int i = 0; i < blocks_m; ++i) to.a[i] =
            as_multiplied(simt, PanelA::template fragment<operand_of_mma::a>(simt, slot, my_a, 16 * i, depth));
        HALFTONE_UNROLL for (int j = 0; j < blocks_n / 2; ++j) to.b[j] = as_multiplied(
            simt, PanelB::template fragment<operand_of_mma::b>(simt, slot + a_bytes, my_b, 16 * j, depth));
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static vec<word, 4> as_multiplied(Simt simt, vec<word, 4> x) {
        if constexpr (std::is_same_v<Compute, tfloat32>) {
            HALFTONE_UNROLL for (int e = 0; e < 4; ++e) x[e] = simt.round_tf32(x[e]);
        }
        return x;
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void multiply(Simt simt, const fragments& x, accumulators& sums) {
        HALFTONE_UNROLL for (int i = 0; i < blocks_m; ++i) {
            HALFTONE_UNROLL for (int j = 0; j < blocks_n; ++j) {
                const vec<word, 2> b_of_mma{x.b[j / 2][j % 2 * 2], x.b[j / 2][j % 2 * 2 + 1]};
                if constexpr (is_of_bytes) {
                    vec<float, 4> some{};
                    simt.mma_16832(simt::element<A>{}, simt::element<B>{}, some, x.a[i], b_of_mma);
                    HALFTONE_UNROLL for (int e = 0; e < 4; ++e) sums[i][j][e] += some[e];
                } else if constexpr (sizeof(stored) == 4) {
                    simt.mma_1688(simt::element<Compute>{}, sums[i][j], x.a[i], b_of_mma);
                } else {
                    simt.mma_16816(simt::element<Compute>{}, sums[i][j], x.a[i], b_of_mma);
                }
            }
        }
    }
};

template <class Compute, class Tiling, panel_load Load, class A, class B, class Operands, class Results>
struct matrix_unit_kernel {
    using tiling = Tiling;
    using product = matrix_unit_sums<Compute, Tiling, Load, A, B>;
    static constexpr int threads = tiling::threads;
    static constexpr int blocks_m = product::blocks_m, blocks_n = product::blocks_n;
    static constexpr bool is_of_bytes = product::is_of_bytes, has_parts = is_partial<Operands, Results>;
    // Without it nvcc limits registers for more blocks, and spills. For 16 bits, small tiles allow as many blocks as
    // the table in tiles.hpp assumes; large ones need nearly all registers.
    static constexpr int min_blocks = sizeof(typename product::stored) != 2 ? 1 : tiling::tile_m <= 64 ? 4 : 0;
    using staged = staged_rows<tiling::warp_n>;
    static constexpr word staged_bytes = threads / 32 * staged::bytes;
    static constexpr word shared_bytes = product::shared_bytes > staged_bytes ? product::shared_bytes : staged_bytes;

    product_operand<A> a;
    product_operand<B> b;
    detail::matmul_epilogue<Operands, Results> epilogue;
    row_access access;
    part_of_depth part{};

    grid_shape grid() const {
        return {simt::blocks_along_x(static_cast<extent>(tiles_m()) * tiles_n()).x, 1, part.count(panels())};
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        run(simt, simt.block().z);
    }
    /// For another matrix of a batch, at this distance in elements.
    HALFTONE_HD HALFTONE_INLINE matrix_unit_kernel of_matrix(extent number, extent by_a, extent by_b,
                                                             extent by_c) const {
        return {offset_by(a, number * by_a), offset_by(b, number * by_b), offset_by(epilogue, number * by_c), access,
                part};
    }
    /// Computes one part of the depth, if it is divided.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void run(Simt simt, int number) const {
        if constexpr (is_of_bytes && !Simt::has_eight_bit_units) return;  // never launched: has_eight_bit_code is false
        const tile_place first = first_of(simt.block().x);
        const int first_panel = has_parts ? part.first(number) : 0;
        const int panels = has_parts ? part.length(this->panels(), first_panel) : this->panels();
        accumulators sums = {};
        run_part(simt, product{a, b, first, first_panel, panels, sums});
        finish(simt, first, part.end(number, epilogue), sums);
    }

    HALFTONE_HD HALFTONE_INLINE int panels() const { return detail::ceil_div(a.depth, tiling::depth); }

  private:
    using accumulators = typename product::accumulators;

    HALFTONE_HD HALFTONE_INLINE int tiles_m() const { return detail::ceil_div(a.outer, tiling::tile_m); }
    HALFTONE_HD HALFTONE_INLINE int tiles_n() const { return detail::ceil_div(b.outer, tiling::tile_n); }

    /// The position of a block's tile.
    HALFTONE_HD HALFTONE_INLINE tile_place first_of(int block) const {
        const tile_place tile = place_in_turn(block, tiles_m(), tiles_n());
        return {tile.row * tiling::tile_m, tile.column * tiling::tile_n};
    }

    /// Stores sixteen rows of the warp's part at a time. A lane has pairs of columns in rows lane / 4 and lane / 4 + 8,
    /// or, if panels were interleaved, in alternating rows and columns.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void finish(Simt simt, tile_place first, const detail::matmul_epilogue<Operands, Results>& end,
                                            const accumulators& sums) const {
        const tile_place mine = product::first_of_warp(simt);
        const staged rows{static_cast<word>(simt.warp()) * staged::bytes};
        const bool by_rows = !is_of_bytes || a.axis == along::depth,
                   by_columns = !is_of_bytes || b.axis == along::depth;
        simt.barrier();  // the slots may be overwritten
        HALFTONE_UNROLL for (int i = 0; i < blocks_m; ++i) {
            simt.warp_barrier();
            HALFTONE_UNROLL for (int j = 0; j < blocks_n; ++j) {
                // With interleaved columns, two blocks hold a pair together.
                const vec<float, 4>&low = sums[i][j / 2 * 2], &high = sums[i][j / 2 * 2 + 1], &both = sums[i][j];
                const int e = j % 2, row = simt.lane() / 4 * (by_rows ? 1 : 2), below = by_rows ? 8 : 1,
                          pair = by_columns ? 4 * j + simt.lane() % 4 : j / 2 * 8 + simt.lane() % 4 * 2 + j % 2;
                rows.put(simt, row, pair, {by_columns ? both[0] : low[e], by_columns ? both[1] : high[e]});
                rows.put(simt, row + below, pair, {by_columns ? both[2] : low[2 + e], by_columns ? both[3] : high[2 + e]});
            }
            simt.warp_barrier();
            rows.finish(simt, end, access, first.row + mine.row + 16 * i, a.outer, first.column + mine.column, b.outer);
        }
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
