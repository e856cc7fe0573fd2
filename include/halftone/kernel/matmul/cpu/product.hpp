// SPDX-License-Identifier: MIT
/// \file
/// The innermost piece of every product on the CPU: a block of rows of a times one panel of columns of b.
///
/// matmul and attention cut their work into such pieces; what differs between instruction sets and compute types stands
/// here alone. `product_unit` tells the tile that a unit likes and holds its functions; choose one with `unit_for`.
///
///     a block:  rows x k, panel_stride elements from row to row or as many as the packing was told, in the unit's
///               element type
///     b panel:  k x columns, k padded with zeros to a multiple of k_step: (k, columns) floats or (k / 2, columns, 2) bfloat16
///     c:        rows x columns floats, c_stride apart
///
/// Numeric contract: operands are rounded to `Compute` when packed, products are exact or rounded to float once, sums
/// are float and follow k in an order that depends on k alone. bfloat16 units may flush subnormals to zero.
#pragma once

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/matmul/cpu/bf16.hpp>
#include <halftone/kernel/matmul/cpu/bf16_small_m.hpp>
#include <halftone/kernel/matmul/cpu/bf16_packing.hpp>
#include <halftone/kernel/matmul/cpu/bf16_results.hpp>
#include <halftone/kernel/matmul/cpu/k_major.hpp>
#include <halftone/kernel/matmul/cpu/fma.hpp>
#include <halftone/kernel/matmul/cpu/fma_small_m.hpp>
#include <halftone/kernel/matmul/cpu/fma_packing.hpp>
#include <halftone/kernel/matmul/cpu/lookahead.hpp>
#include <halftone/kernel/matmul/cpu/operands.hpp>
#include <halftone/kernel/matmul/cpu/tile.hpp>
#include <halftone/policy/promotion.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

struct product_unit {
    int rows;     ///< a's rows are a multiple of this in memory; the work goes by as many at a time
    int columns;  ///< the width of a panel of b
    int k_step;   ///< k is padded with zeros to a multiple of this
    int element;  ///< bytes of a packed element
    /// Without an `ahead` the next panel lies behind this one.
    void (*multiply)(extent rows, extent k, const void* a_block, const void* b_panel, float* c, extent c_stride,
                     bool add, lookahead* ahead);
    void (*enter)() = nullptr;  ///< called by a worker before its products, where it is there
    void (*leave)() = nullptr;  ///< and after them
    /// `multiply` with a however it lies; none: it is always packed, by rows.
    void (*multiply_rows)(extent rows, extent k, const block_of_a& a, const void* b_panel, float* c, extent c_stride,
                          bool add, lookahead* ahead) = nullptr;
    int k_multiple = k_step;  ///< k of a product may be a multiple of this; what is packed is padded further
    /// `multiply_rows` of a whole panel where k ends: what was summed (none: nothing) and the product, in `to`; none:
    /// sums stay sums.
    template <class To>
    using ending = void (*)(extent rows, extent k, const block_of_a& a, const void* b_panel, const float* sums,
                            extent sums_stride, To* to, extent to_stride, lookahead* ahead);
    ending<float> multiply_last = nullptr;
    ending<bfloat16> multiply_last_rounded = nullptr;
    /// `multiply_rows` by the first half of a panel's columns, in half the time, unless a lies by depth; none: by all of
    /// them.
    decltype(multiply_rows) multiply_half = nullptr;
    /// to (rows x columns) = from (none: nothing) + a times a panel of b over pieces of panel_depth, of which only the
    /// last may be shorter, while the sums stay in the unit; `ahead`, if there is one, is asked after every k_step. None:
    /// sums wait in memory after every piece.
    void (*multiply_through)(extent k, const deep_operands& operands, const float* from, extent from_stride, float* to,
                             extent to_stride, lookahead* ahead) = nullptr;
    /// Stores rows of sums as wide as a panel where they belong, `past` the caches if those lie on whole lines of them;
    /// none: epilogues do.
    template <class To>
    using storing = void (*)(extent rows, const float* sums, extent sums_stride, To* to, extent to_stride, bool non_temporal);
    storing<float> store_rows = nullptr;
    storing<bfloat16> store_rows_rounded = nullptr;
    extent depth = panel_depth;  ///< the largest k that `multiply_rows` likes in one piece

    /// The k that a product of k runs over.
    extent run(extent k) const { return (k + k_multiple - 1) / k_multiple * k_multiple; }
    extent padded(extent k) const { return (k + k_step - 1) / k_step * k_step; }
    std::size_t panel_bytes(extent k) const { return static_cast<std::size_t>(padded(k) * columns * element); }
    std::size_t block_bytes(extent most_rows, extent stride = panel_stride) const {
        return round_up(static_cast<std::size_t>((most_rows + rows - 1) / rows * rows * stride * element),
                        block_alignment);
    }
};

/// Packing functions of one source type, to which `from` points; see fma_packing.simd.hpp and bf16_packing.hpp. Strides are in
/// elements, and one of them is 1. Rows of a come to lie block_stride elements apart. b may have columns for several panels,
/// which then lie so many bytes apart.
template <class T>
struct product_packing {
    void (*pack_a)(const void* from, extent row_stride, extent k_stride, extent rows, extent k, void* block,
                   extent block_stride);
    void (*pack_b)(const void* from, extent k_stride, extent column_stride, extent k, extent columns, void* panels,
                   std::size_t panel_step_bytes);
    bool keeps_rows = false;  ///< rows of a whose elements lie side by side are packed as they are
    /// Few rows of a, packed or where they lie, times b where it lies, one of its strides 1: any number where that is
    /// column_stride, else up to small_m; none: b is packed.
    void (*multiply_small_m)(extent rows, extent k, const void* a, extent a_stride, const void* b, extent k_stride,
                         extent column_stride, extent columns, float* c, extent c_stride, bool add) = nullptr;
    /// Packs a by depth (block_of_a) where its columns lie side by side, for a unit of k_major_rows rows; none: `pack_a`
    /// turns them.
    void (*pack_a_k_major)(const void* from, extent k_stride, extent rows, extent k, void* block, extent stride) = nullptr;

    void pack_block(const void* from, extent row_stride, extent k_stride, extent rows, extent k, void* block) const {
        pack_a(from, row_stride, k_stride, rows, k, block, panel_stride);
    }
    void pack_panel(const void* from, extent k_stride, extent column_stride, extent k, extent columns, void* panel) const {
        pack_b(from, k_stride, column_stride, k, columns, panel, 0);
    }
};

/// True where the set multiplies this type by units of its own rather than converted to float.
template <class Compute>
bool uses_pairs(isa set) {
    return std::is_same_v<Compute, bfloat16> && set >= isa::avx512_bf16;
}

template <class Compute>
product_unit unit_for(const cpu& device) {
#if defined(__x86_64__)
    if (uses_pairs<Compute>(device.instruction_set())) {
        using namespace avx512_bf16;
        if (device.instruction_set() == isa::amx)
            return {.rows = 32,
                    .columns = 32,
                    .k_step = bf16_k_step,
                    .element = 2,
                    .multiply = &amx::tile_multiply,
                    .enter = &amx::enter_tiles,
                    .leave = &amx::leave_tiles,
                    .multiply_through = &amx::tile_multiply_through,
                    .store_rows = &avx512_bf16::store_rows,
                    .store_rows_rounded = &avx512_bf16::store_rows};
        return {.rows = 12,
                .columns = bf16_columns,
                .k_step = bf16_k_step,
                .element = 2,
                .multiply = &pair_multiply,
                .multiply_rows = &pair_multiply_rows,
                .k_multiple = 2,
                .multiply_last = &pair_multiply_last<float>,
                .multiply_last_rounded = &pair_multiply_last<bfloat16>,
                .multiply_half = &pair_multiply_half,
                // Sums come and go half as often: panels so deep still come from the second-level cache in time.
                .depth = 2 * panel_depth};
    }
#endif
    const int rows = device.instruction_set() >= isa::avx512 ? avx512::fma_rows
                     : device.instruction_set() == isa::avx2 ? avx2::fma_rows
                                                             : portable::fma_rows;
    const int columns = device.instruction_set() >= isa::avx512 ? avx512::fma_columns
                        : device.instruction_set() == isa::avx2 ? avx2::fma_columns
                                                                : portable::fma_columns;
    return {rows,
            columns,
            1,
            4,
            device.select(&portable::fma_multiply, &avx2::fma_multiply, &avx512::fma_multiply),
            nullptr,
            nullptr,
            device.select(&portable::fma_multiply_rows, &avx2::fma_multiply_rows, &avx512::fma_multiply_rows),
            1,
            device.select(&portable::fma_multiply_last, &avx2::fma_multiply_last, &avx512::fma_multiply_last),
            nullptr,
            device.select(&portable::fma_multiply_half, &avx2::fma_multiply_half, &avx512::fma_multiply_half)};
}

/// What a product does with its first operand, and nothing that the second one alone needs: what nobody calls is not compiled.
template <class Compute, class T>
product_packing<T> packing_of_a(const cpu& device) {
#if defined(__x86_64__)
    if (detail::uses_pairs<Compute>(device.instruction_set()))
        return {&avx512_bf16::pack_a_bf16<T>, nullptr, std::is_same_v<T, bfloat16>, nullptr,
                device.instruction_set() == isa::amx ? nullptr : &avx512_bf16::pack_a_pairs<T>};
#endif
    return {device.select(&portable::pack_a<Compute, T>, &avx2::pack_a<Compute, T>, &avx512::pack_a<Compute, T>), nullptr,
            std::is_same_v<Compute, float> && std::is_same_v<T, float>, nullptr,
#if defined(__x86_64__)
            device.instruction_set() >= isa::avx512 ? &avx512::pack_a_k_major<Compute, T> : nullptr
#endif
    };
}

/// The same of its second operand.
template <class Compute, class T>
product_packing<T> packing_of_b(const cpu& device) {
#if defined(__x86_64__)
    if (detail::uses_pairs<Compute>(device.instruction_set()))
        return {nullptr, &avx512_bf16::pack_b_bf16<T>, std::is_same_v<T, bfloat16>,
                device.instruction_set() == isa::amx ? nullptr : &avx512_bf16::pair_multiply_small_m<T>};
#endif
    return {nullptr, device.select(&portable::pack_b<Compute, T>, &avx2::pack_b<Compute, T>, &avx512::pack_b<Compute, T>),
            std::is_same_v<Compute, float> && std::is_same_v<T, float>,
            device.select(&portable::fma_multiply_small_m<Compute, T>, &avx2::fma_multiply_small_m<Compute, T>,
                          &avx512::fma_multiply_small_m<Compute, T>)};
}

/// Of both.
template <class Compute, class T>
product_packing<T> packing_for(const cpu& device) {
    product_packing<T> packing = packing_of_a<Compute, T>(device);
    const product_packing<T> of_b = packing_of_b<Compute, T>(device);
    packing.pack_b = of_b.pack_b;
    packing.multiply_small_m = of_b.multiply_small_m;
    return packing;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
