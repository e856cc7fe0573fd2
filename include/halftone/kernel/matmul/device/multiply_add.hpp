// SPDX-License-Identifier: MIT
/// \file
/// A product by ordinary multiply-adds in float, for types that matrix units would round or do not support.
///
/// A block computes a tile of c. Panels of a and b, Depth deep, are loaded into registers, converted, and stored to
/// shared memory with the outer axis contiguous, in two slots: while one is multiplied, the next is loaded. A thread
/// sums 8x8 elements, in two by two blocks of 4x4, so that a warp reads its panels without bank conflicts.
///
/// Numeric contract: an element is the sum over k, or over a part of it, in order, of products of operands that are
/// rounded to Compute.
#pragma once

#include <halftone/kernel/matmul/device/finish.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// A tile of c, of which each warp computes 32x64 elements.
template <int TileM, int TileN>
struct multiply_add_tiling {
    static constexpr int tile_m = TileM, tile_n = TileN, depth = 8, warps_n = TileN / 64;
    static constexpr int threads = TileM / 32 * warps_n * 32;
};

/// The sums of a block's tile over some panels, in its threads' registers.
template <class Compute, class Tiling, class A, class B>
struct multiply_add_sums {
    using tiling = Tiling;
    static constexpr int threads = tiling::threads, depth = tiling::depth;
    // Padded by four floats, so that stores of a column of the panel have no bank conflicts.
    static constexpr int a_line = tiling::tile_m + 4, b_line = tiling::tile_n + 4;
    static constexpr word slot_floats = depth * (a_line + b_line), shared_bytes = 2 * slot_floats * sizeof(float);

    const product_operand<A>& a;
    const product_operand<B>& b;
    tile_place first;
    int first_panel, panels;
    vec<float, 8> (&sums)[8];

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void operator()(Simt simt) const {
        vec<float, 4> next_a[fours<tiling::tile_m>], next_b[fours<tiling::tile_n>];
        if (panels > 0) {
            fetch<tiling::tile_m>(simt, a, first.row, first_panel * depth, next_a);
            fetch<tiling::tile_n>(simt, b, first.column, first_panel * depth, next_b);
            put<tiling::tile_m>(simt, a.axis, a_panel(0), next_a);
            put<tiling::tile_n>(simt, b.axis, b_panel(0), next_b);
            simt.barrier();
        }
        for (int i = 0; i < panels; ++i) {
            const bool has_next = i + 1 < panels;
            if (has_next) {
                fetch<tiling::tile_m>(simt, a, first.row, (first_panel + i + 1) * depth, next_a);
                fetch<tiling::tile_n>(simt, b, first.column, (first_panel + i + 1) * depth, next_b);
            }
            multiply(simt, i % 2, sums);
            if (has_next) {
                // Writes the other slot, which all threads have finished reading before the last barrier.
                put<tiling::tile_m>(simt, a.axis, a_panel((i + 1) % 2), next_a);
                put<tiling::tile_n>(simt, b.axis, b_panel((i + 1) % 2), next_b);
                simt.barrier();
            }
        }
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static int my_row(Simt simt) {
        return simt.warp() / tiling::warps_n * 32 + simt.lane() / 8 * 4;
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static int my_column(Simt simt) {
        return simt.warp() % tiling::warps_n * 64 + simt.lane() % 8 * 4;
    }

  private:
    template <int Outer>
    static constexpr int fours = Outer * depth / 4 / threads;

    HALFTONE_HD HALFTONE_INLINE static shared_span<float> a_panel(int slot) {
        return {static_cast<word>(slot) * slot_floats * static_cast<word>(sizeof(float)), depth * a_line};
    }
    HALFTONE_HD HALFTONE_INLINE static shared_span<float> b_panel(int slot) {
        return {a_panel(slot).end(), depth * b_line};
    }

    /// The place of a group of four consecutive elements in a panel.
    struct place {
        int outer, depth;
    };
    template <int Outer>
    HALFTONE_HD HALFTONE_INLINE static place place_of(int four, along axis) {
        return axis == along::depth ? place{four / (depth / 4), four % (depth / 4) * 4}
                                    : place{four % (Outer / 4) * 4, four / (Outer / 4)};
    }

    HALFTONE_KERNEL template <int Outer, class Simt, class T>
    HALFTONE_HD HALFTONE_INLINE static void fetch(Simt simt, const product_operand<T>& from, int first_outer,
                                                  int first_depth, vec<float, 4> (&to)[fours<Outer>]) {
        HALFTONE_UNROLL for (int i = 0; i < fours<Outer>; ++i) {
            const place p = place_of<Outer>(simt.thread() + i * threads, from.axis);
            to[i] = load_some<4>(simt, from.rest(first_outer + p.outer, first_depth + p.depth), from.access);
            if constexpr (!std::is_same_v<T, Compute>) to[i] = to_float(round_to<Compute>(to[i]));
        }
    }
    HALFTONE_KERNEL template <int Outer, class Simt>
    HALFTONE_HD HALFTONE_INLINE static void put(Simt simt, along axis, const shared_span<float>& panel,
                                                const vec<float, 4> (&from)[fours<Outer>]) {
        constexpr int line = Outer + 4;
        HALFTONE_UNROLL for (int i = 0; i < fours<Outer>; ++i) {
            const place p = place_of<Outer>(simt.thread() + i * threads, axis);
            if (axis == along::depth) {
                HALFTONE_UNROLL for (int e = 0; e < 4; ++e)
                    simt.store(panel, (p.depth + e) * line + p.outer, from[i][e]);
            } else {
                simt.store(in_fours(panel), (p.depth * line + p.outer) / 4, from[i]);
            }
        }
    }
    HALFTONE_HD HALFTONE_INLINE static shared_span<vec<float, 4>> in_fours(const shared_span<float>& s) {
        return {s.offset, s.count / 4};
    }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE static void multiply(Simt simt, int slot, vec<float, 8> (&sums)[8]) {
        const shared_span<vec<float, 4>> a_fours = in_fours(a_panel(slot)), b_fours = in_fours(b_panel(slot));
        HALFTONE_UNROLL for (int k = 0; k < depth; ++k) {
            const int a_first = (k * a_line + my_row(simt)) / 4, b_first = (k * b_line + my_column(simt)) / 4;
            const vec<float, 4> x[2] = {simt.load(a_fours, a_first), simt.load(a_fours, a_first + 4)};
            const vec<float, 4> y[2] = {simt.load(b_fours, b_first), simt.load(b_fours, b_first + 8)};
            HALFTONE_UNROLL for (int i = 0; i < 8; ++i) {
                HALFTONE_UNROLL for (int j = 0; j < 8; ++j) sums[i][j] += x[i / 4][i % 4] * y[j / 4][j % 4];
            }
        }
    }
};

template <class Compute, class Tiling, class A, class B, class Operands, class Results>
struct multiply_add_kernel {
    using tiling = Tiling;
    using product = multiply_add_sums<Compute, Tiling, A, B>;
    static constexpr int threads = tiling::threads, depth = tiling::depth, min_blocks = 0;
    static constexpr word shared_bytes = product::shared_bytes;
    static constexpr bool has_parts = is_partial<Operands, Results>;

    product_operand<A> a;
    product_operand<B> b;
    detail::matmul_epilogue<Operands, Results> epilogue;
    row_access access;
    part_of_depth part{};

    grid_shape grid() const {
        const extent tiles_n = detail::ceil_div(static_cast<extent>(b.outer), tiling::tile_n);
        return {simt::blocks_along_x(tiles_m() * tiles_n).x, 1, part.count(panels())};
    }
    HALFTONE_HD HALFTONE_INLINE int tiles_m() const { return detail::ceil_div(a.outer, tiling::tile_m); }
    HALFTONE_HD HALFTONE_INLINE int panels() const { return detail::ceil_div(a.depth, depth); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        run(simt, simt.block().z);
    }
    /// For another matrix of a batch, at this distance in elements.
    HALFTONE_HD HALFTONE_INLINE multiply_add_kernel of_matrix(extent number, extent by_a, extent by_b,
                                                              extent by_c) const {
        return {offset_by(a, number * by_a), offset_by(b, number * by_b), offset_by(epilogue, number * by_c), access,
                part};
    }
    /// Computes one part of the depth, if it is divided.
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void run(Simt simt, int number) const {
        const int tile = simt.block().x, tile_column = tile / tiles_m();
        const int first_row = (tile - tile_column * tiles_m()) * tiling::tile_m,
                  first_column = tile_column * tiling::tile_n;
        const int first_panel = has_parts ? part.first(number) : 0;
        const int panels = has_parts ? part.length(this->panels(), first_panel) : this->panels();
        vec<float, 8> sums[8] = {};
        run_part(simt, product{a, b, {first_row, first_column}, first_panel, panels, sums});
        HALFTONE_UNROLL for (int i = 0; i < 8; ++i) {
            const int row = first_row + product::my_row(simt) + i / 4 * 16 + i % 4;
            HALFTONE_UNROLL for (int j = 0; j < 8; j += 4) {
                const int column = first_column + product::my_column(simt) + j / 4 * 32;
                if (row < a.outer && column < b.outer) {
                    finish_row(simt, part.end(number, epilogue), access, row, column, b.outer,
                               vec<float, 4>{sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]});
                }
            }
        }
    }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
