// SPDX-License-Identifier: MIT
/// \file
/// A coded matrix as the second operand of a product on the CPU: its rows of codes, and what decodes a part of one. A product
/// never decodes the whole matrix: each piece is decoded where it is packed, or multiplied unpacked, to the element type that
/// the unit's packing takes best, in memory that stays in L1 or L2 until then (untyped_b).
#pragma once

#include <cstddef>
#include <type_traits>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/matmul/cpu/unit.hpp>
#include <halftone/kernel/matmul/cpu/unit/coded_small_m.hpp>
#include <halftone/kernel/matmul/cpu/unit/decode.hpp>
#include <halftone/kernel/matmul/cpu/unit/prefetch.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/nf4.hpp>
#include <halftone/tensor/coded_matrix.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// What of b is decoded at a time. Where columns are rows of codes: up to 32 of them, one panel or several, over a piece of k
/// as the strategies cut it. Where rows are: up to panel_depth of k, and of bfloat16 the 64 columns of a scale.
inline constexpr extent coded_columns = 32, coded_columns_of_two_bytes = 64;
/// Bytes of these, with room for an odd number of cache lines a column.
inline constexpr std::size_t coded_bytes = coded_columns * (2 * panel_depth * 2 + 64);

/// Rows of codes, and what decodes a part of one to the elements that a packing reads.
struct coded_rows : coded_source {
    decode_part_of_rows* decode = no_function;
    multiply_coded_small_m* multiply_few = no_function;  ///< by its rows as columns, without decoding to memory
    const std::byte* codes = nullptr;                    ///< where the first row begins, to be prefetched
    extent row_bytes = 0;                                ///< of a row of codes

    /// The memory of elements [first, first + count) of some rows.
    strided_lines lines_of(extent row, extent rows, extent first, extent count) const {
        return {codes + row * row_bytes + first * row_bytes / width, rows, count * row_bytes / width, row_bytes};
    }
};

/// What multiplies few rows of a by rows of codes without decoding these to memory, if there is one for products in Compute.
template <class Compute, class Format>
multiply_coded_small_m* coded_small_m_for([[maybe_unused]] const cpu& device) {
#if HALFTONE_AVX512
    if (std::is_same_v<Compute, bfloat16> && device.instruction_set() == isa::avx512)
        return avx512::coded_small_m_of(Format{});
#endif
    return no_function;
}

/// The rows of a coded matrix, decoded to T.
template <class T, class Format>
coded_rows rows_of_codes(const cpu& device, const coded_matrix<Format>& m) {
    coded_rows rows;
    rows.data = m.data();
    rows.rows = m.stored_rows();
    rows.width = m.stored_width();
    rows.decode = device.select(HALFTONE_EACH_SET(decode_rows<Format, T>));
    if constexpr (std::is_same_v<Format, nf4>) {
        rows.codes = m.data() + nf4::codes_position(m.elements());
        rows.row_bytes = m.stored_width() / 2;
    } else {
        rows.codes = m.data();
        rows.row_bytes = static_cast<extent>(Format::bytes(static_cast<std::size_t>(m.stored_width())));
    }
    return rows;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
