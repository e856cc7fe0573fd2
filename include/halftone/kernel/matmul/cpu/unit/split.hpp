// SPDX-License-Identifier: MIT
/// \file
/// Products of split operands, as sums of products of bfloat16 pieces (number/split.hpp), and matmul's choice of a unit.
///
/// AMX tiles multiply bfloat16 fifteen times as fast as vectors multiply floats. There split<bfloat16, N> is multiplied
/// piece by piece, and so is float16, which two pieces hold exactly. Everywhere else six or four products cost more than one
/// multiply-add (VDPBF16PS is twice as fast as multiply-adds of floats), which takes the operands exactly, and is what
/// happens. Attention multiplies floats on every machine: a tile of weights or score gradients meets the few panels of one
/// head, too few products to pay for splitting it.
///
/// Numeric contract: operands are rounded to Compute when packed. Of the products of their pieces those that split::takes
/// are exact. They are summed in float: split_depth of k at a time, the products of first pieces after all others. A piece, a
/// product or a sum below 2^-126 may count as zero. With n terms, u = 2^-24 and g(n) = n u / (1 - n u) the error is at most
///
///     (first g(n + 1) + later g(6 n + 1) + dropped) sum |a||b|  +  2^-125 sum (|a| + |b|)  +  14 n 2^-126
///
/// (first, later, dropped: split's constants, 1 + 2^-7, 2^-7 and 2^-24 or, with two pieces, 0). A product of first pieces
/// passes through n + 1 additions; the others, which are 2^-7 of it together, through six times as many at most. The tiles
/// add even and odd products of 32 of k in two chains, so that each passes through few: with them the relative part is less
/// than that of a chain of multiply-adds, g(n + 1), from n = 4 on (split_tile_additions).
///
/// A sum that comes out infinite or NaN is computed again by multiply-adds of the floats that the pieces add up to: so
/// infinities, NaNs and overflow have the results of floats, and the other sums, which are finite, keep their bits.
#pragma once

#include <cstddef>
#include <cstring>

#include <halftone/exec/cpu/simd/tile_software.hpp>
#include <halftone/kernel/matmul/cpu/unit/choose.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>
#include <halftone/kernel/matmul/cpu/unit/prefetch.hpp>
#include <halftone/kernel/matmul/cpu/unit/split_packing.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/number/split.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Into how many bfloat16 operands of Compute are split, on tiles.
template <class Compute>
inline constexpr int split_pieces = 1;
template <>
inline constexpr int split_pieces<float16> = 2;
template <int N>
inline constexpr int split_pieces<split<bfloat16, N>> = N;

/// How many additions a product of two first pieces passes through on tiles, and how many another one.
struct split_tile_additions {
    extent first, later;

    split_tile_additions(extent k, int pieces) {
        const extent depth = k < split_depth ? k : split_depth, steps = ceil_div(depth, 32);
        // Sixteen even or odd products, the two sums of these, a sum for each step, and one for each split_depth.
        const extent within = depth < 32 ? ceil_div(depth, 2) : 16, depths = ceil_div(k, split_depth);
        first = within + steps + depths - 1;
        later = within + (pieces == 2 ? 4 : 6) * steps + depths - 1;
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if HALFTONE_AMX
// The body in the region, not in the order of the alphabet.
// clang-format off
#include <halftone/exec/cpu/set/amx.hpp>
#include <halftone/kernel/matmul/cpu/unit/split_tile.simd.hpp>
#include <halftone/exec/cpu/set/end.hpp>
// clang-format on
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

template <class Compute>
bool multiplies_pieces(isa set) {
    return split_pieces<Compute> > 1 && set == isa::amx;
}

/// The unit of matmul.
template <class Compute>
product_unit matmul_unit_for(const cpu& device) {
#if HALFTONE_AMX
    if constexpr (split_pieces<Compute> > 1) {
        constexpr int pieces = split_pieces<Compute>;
        if (multiplies_pieces<Compute>(device.instruction_set())) {
            return {.rows = 32,
                    .columns = 32,
                    .k_step = 32,
                    .element = 2 * pieces,
                    .multiply = &amx::split_tile_multiply<pieces>,
                    .tiles = product_unit::tile_functions{.multiply = &amx::split_tile_multiply_pieces<pieces>,
                                                          .store = &avx512_bf16::store_rows,
                                                          .store_rounded = no_function},
                    .worker = product_unit::worker_functions{.begin = &amx::enter_tiles, .end = &amx::leave_tiles}};
        }
    }
#endif
    return unit_for<unsplit<Compute>>(device);
}

/// How it packs its first operand.
template <class Compute, class T>
a_packing<T> matmul_packing_of_a(const cpu& device) {
#if HALFTONE_AMX
    if constexpr (split_pieces<Compute> > 1) {
        if (multiplies_pieces<Compute>(device.instruction_set()))
            return {.pack = &avx512::pack_a_split<Compute, split_pieces<Compute>, T>};
    }
#endif
    return packing_of_a<unsplit<Compute>, T>(device);
}

/// How the unit for Compute, which may split operands, packs its second operand of T.
template <class Compute, class T>
b_packing<T> matmul_packing_of_b(const cpu& device) {
#if HALFTONE_AMX
    if constexpr (split_pieces<Compute> > 1) {
        if (multiplies_pieces<Compute>(device.instruction_set()))
            return {.pack = &avx512::pack_b_split<Compute, split_pieces<Compute>, T>};
    }
#endif
    return packing_of_b<unsplit<Compute>, T>(device);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
