// SPDX-License-Identifier: MIT
/// \file
/// A product unit: the code of one instruction set and compute type that multiplies a block of rows of a by one panel of
/// columns of b, and the packing that brings operands into the form that it reads.
///
/// matmul and attention cut their work into such pieces; only the units differ between instruction sets and compute types.
/// unit/choose.hpp lists the existing ones.
///
///     packed block of a:  (rows, k), panel_stride elements from row to row or as many as the packing was told, in the
///                         unit's element type
///     packed panel of b:  (k, columns) floats or (k / 2, columns, 2) bfloat16, k padded with zeros to a multiple of k_step
///     c:                  (rows, columns) floats, c_stride from row to row
///
/// Numeric contract: operands are rounded to `Compute` when packed, products are exact or rounded to float once, sums are
/// float and follow k in an order that depends on k alone. bfloat16 units may flush subnormals to zero.
#pragma once

#include <cstddef>
#include <optional>

#include <halftone/exec/workspace.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>
#include <halftone/kernel/matmul/cpu/unit/prefetch.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// In place of a function that a unit or a packing does not have.
inline constexpr std::nullptr_t no_function = nullptr;

/// c = or += a (rows, k) times one packed panel of b (k, columns). Without an `ahead` the next panel is expected behind
/// this one in memory, and prefetched.
using multiply_packed = void(extent rows, extent k, const void* a_block, const void* b_panel, float* c, extent c_stride,
                             bool add, lookahead* ahead);
/// c = or += a (rows, k), in any layout that block_of_a describes, times one packed panel of b (k, columns).
using multiply_block = void(extent rows, extent k, const block_of_a& a, const void* b_panel, float* c, extent c_stride,
                            bool add, lookahead* ahead);
/// to = sums (nullptr: zeros) + a (rows, k) times one packed panel of b: the last piece of k, stored as the result.
template <class To>
using multiply_last_piece = void(extent rows, extent k, const block_of_a& a, const void* b_panel, const float* sums,
                                 extent sums_stride, To* to, extent to_stride, lookahead* ahead);
/// to (rows, columns) = from (nullptr: zeros) + a times a panel of b over several pieces of panel_depth, of which only the
/// last may be shorter, while the sums stay in the unit. `ahead`, unless it is nullptr, prefetches after every k_step.
using multiply_pieces = void(extent k, const deep_operands& operands, const float* from, extent from_stride, float* to,
                             extent to_stride, lookahead* ahead);
/// Stores rows of sums, as wide as a panel, as results; non-temporal ones begin on cache lines.
template <class To>
using store_sum_rows = void(extent rows, const float* sums, extent sums_stride, To* to, extent to_stride,
                            bool non_temporal);

struct product_unit {
    /// What vector units have: tiles of sums in registers, that read a in any layout and may end in the result.
    struct vector_functions {
        multiply_block* multiply;
        /// Multiplies by the first half of a panel's columns, in half the time; a is not k-major.
        multiply_block* multiply_half_panel;
        multiply_last_piece<float>* multiply_last;
        multiply_last_piece<bfloat16>* multiply_last_rounded = no_function;
    };
    /// What matrix tiles have: sums that stay in the unit over several pieces of k, and stores of a whole panel's width.
    struct tile_functions {
        multiply_pieces* multiply;
        store_sum_rows<float>* store = no_function;
        store_sum_rows<bfloat16>* store_rounded = no_function;
    };
    /// What a worker thread calls before its products and after them: AMX configures its registers.
    struct worker_functions {
        void (*begin)();
        void (*end)();
    };

    int rows;     ///< of one tile: a's rows are a multiple of this in memory
    int columns;  ///< of a panel of b
    int k_step;   ///< packed k is padded with zeros to a multiple of this
    int element;  ///< bytes of a packed element
    multiply_packed* multiply;
    int k_multiple = k_step;             ///< k of a product may be a multiple of this; what is packed is padded further
    extent deepest_piece = panel_depth;  ///< the largest k that `vectors->multiply` takes well in one piece
    std::optional<vector_functions> vectors = std::nullopt;
    std::optional<tile_functions> tiles = std::nullopt;
    std::optional<worker_functions> worker = std::nullopt;

    void begin_worker() const {
        if (worker) worker->begin();
    }
    void end_worker() const {
        if (worker) worker->end();
    }
    /// The k that a product over k runs over.
    extent run(extent k) const { return round_up(k, k_multiple); }
    extent padded(extent k) const { return round_up(k, k_step); }
    std::size_t panel_bytes(extent k) const { return static_cast<std::size_t>(padded(k) * columns * element); }
    std::size_t block_bytes(extent most_rows, extent stride = panel_stride) const {
        return round_up(static_cast<std::size_t>(round_up(most_rows, rows) * stride * element), block_alignment);
    }
};

// Packing. `from` points to elements of the source type; strides are in elements, and one of an operand's two is 1.

/// Packs a (rows, k) into rows block_stride elements apart.
using pack_rows_of_a = void(const void* from, extent row_stride, extent k_stride, extent rows, extent k, void* block,
                            extent block_stride);
/// Packs a (rows, k), whose columns are contiguous, k-major (block_of_a), for units of k_major_rows rows.
using pack_k_major_of_a = void(const void* from, extent k_stride, extent rows, extent k, void* block, extent stride);
/// Packs b (k, columns), for one panel or several that begin panel_step_bytes apart.
using pack_panels_of_b = void(const void* from, extent k_stride, extent column_stride, extent k, extent columns,
                              void* panels, std::size_t panel_step_bytes);
/// c (rows, columns) = or += rows of a, packed or unpacked, times unpacked b (k, columns): any number of rows where b is
/// row-major, else up to small_m, or small_m_by_columns_wide on multiply-adds of 16 floats.
using multiply_unpacked_b = void(extent rows, extent k, const void* a, extent a_stride, const void* b, extent k_stride,
                                 extent column_stride, extent columns, float* c, extent c_stride, bool add);

/// What a unit does with a first operand of elements T.
template <class T>
struct a_packing {
    pack_rows_of_a* pack;
    bool has_unit_type = false;  ///< packing a row-major a only copies it, so that tiles may read it in place
    pack_k_major_of_a* pack_k_major = no_function;
};
/// What a unit does with a second operand of elements T.
template <class T>
struct b_packing {
    pack_panels_of_b* pack;
    bool has_unit_type = false;
    multiply_unpacked_b* multiply_unpacked = no_function;
};
/// What a unit does with both operands, for a program that multiplies what it packs itself, as attention does.
template <class T>
struct product_packing {
    a_packing<T> a;
    b_packing<T> b;

    void pack_block(const void* from, extent row_stride, extent k_stride, extent rows, extent k, void* block) const {
        a.pack(from, row_stride, k_stride, rows, k, block, panel_stride);
    }
    void pack_panel(const void* from, extent k_stride, extent column_stride, extent k, extent columns,
                    void* panel) const {
        b.pack(from, k_stride, column_stride, k, columns, panel, 0);
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
