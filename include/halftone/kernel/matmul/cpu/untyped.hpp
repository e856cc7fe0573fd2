// SPDX-License-Identifier: MIT
/// \file
/// A product on the CPU without types: operands and epilogue as addresses, element sizes, strides and function pointers.
/// The loops over them (strategy/) are compiled once in a program, whatever types and epilogues it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/common/squares/cpu.hpp>
#include <halftone/kernel/matmul/cpu/coded.hpp>
#include <halftone/kernel/matmul/cpu/plan.hpp>
#include <halftone/kernel/matmul/cpu/unit.hpp>
#include <halftone/kernel/matmul/epilogue.hpp>
#include <halftone/memory/square_sum.hpp>
#include <halftone/tensor/coded_matrix.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A matrix without its element type. Strides are in elements.
struct untyped_operand {
    const std::byte* data;
    extent element;  ///< bytes
    extent rows, columns, row_stride, column_stride;
    bool has_unit_type;  ///< its elements are what the unit multiplies

    const std::byte* at(extent row, extent column) const {
        return data + (row * row_stride + column * column_stride) * element;
    }

  protected:
    untyped_operand(const std::byte* first, extent element_bytes, const shape<2>& s, const shape<2>& strides,
                    bool is_unit_type)
        : data(first),
          element(element_bytes),
          rows(s[0]),
          columns(s[1]),
          row_stride(strides[0]),
          column_stride(strides[1]),
          has_unit_type(is_unit_type) {}
    template <class T>
    untyped_operand(const view<T, 2>& v, bool is_unit_type)
        : data(reinterpret_cast<const std::byte*>(v.data())),
          element(sizeof(T)),
          rows(v.extent_of(0)),
          columns(v.extent_of(1)),
          row_stride(v.stride_of(0)),
          column_stride(v.stride_of(1)),
          has_unit_type(is_unit_type) {}
};

/// The first operand, (m, k), and what packs a piece of it.
struct untyped_a : untyped_operand {
    pack_rows_of_a* pack;
    pack_k_major_of_a* pack_k_major;

    template <class T>
    untyped_a(const view<T, 2>& v, const a_packing<std::remove_const_t<T>>& packing)
        : untyped_operand(v, packing.has_unit_type), pack(packing.pack), pack_k_major(packing.pack_k_major) {}
};
/// The second one, (k, n). It has elements in memory, or is a coded matrix: then `data` is not read, and its elements are
/// decoded, a piece at a time, to what a matrix of those strides would have there.
struct untyped_b : untyped_operand {
    pack_panels_of_b* pack;
    multiply_unpacked_b* multiply_unpacked;
    coded_rows coded{};  ///< without a `decode` where elements are in memory

    template <class T>
    untyped_b(const view<T, 2>& v, const b_packing<std::remove_const_t<T>>& packing)
        : untyped_operand(v, packing.has_unit_type), pack(packing.pack), multiply_unpacked(packing.multiply_unpacked) {}
    /// A coded matrix, by what packs elements of T, to which its codes are decoded.
    template <class Format, class T>
    untyped_b(const coded_matrix<Format>& m, const b_packing<T>& packing, const coded_rows& rows_of_codes)
        : untyped_operand(nullptr, sizeof(T), m.shape(),
                          m.is_transposed() ? shape<2>{1, m.stored_width()} : shape<2>{m.stored_width(), 1},
                          packing.has_unit_type),
          pack(packing.pack),
          multiply_unpacked(packing.multiply_unpacked),
          coded(rows_of_codes) {}

    bool is_coded() const { return coded.decode != no_function; }
    /// Packs (k, wide) at (p, j) into panels of the unit, which begin panel_step_bytes apart.
    void pack_piece(extent p, extent j, extent k, extent wide, const product_unit& unit, std::byte* panels,
                    std::size_t panel_step_bytes) const;
    /// c (high, wide) = or += rows of a, of the unit's type, times the (k, wide) at (p, j), unpacked.
    void multiply_piece(extent high, extent k, const std::byte* a_rows, extent a_stride, extent p, extent j,
                        extent wide, const product_unit& unit, float* c, extent c_stride, bool add) const;
    /// The memory that reading (k, wide) at (p, j) touches.
    strided_lines lines_of(extent p, extent j, extent k, extent wide) const;
};

/// Rows and columns of a product's result.
struct result_block {
    extent row, column, rows, columns;
};

/// A matrix that sums are stored in as they are, or rounded and nothing else; without data: there is none.
template <class T>
struct plain_result {
    T* data = nullptr;
    extent stride = 0;

    T* at(extent row, extent column) const { return data + row * stride + column; }
    explicit operator bool() const { return data != nullptr; }
};

/// An epilogue without its type: a matmul_epilogue<Operands, Results> and functions that know which.
struct untyped_epilogue {
    const void* epilogue;
    /// Sends a block of sums, (rows, columns) at (row, column) of the result, through it.
    void (*finish)(const void* epilogue, const float* sums, extent sums_stride, extent row, extent column, extent rows,
                   extent columns, bool non_temporal);
    /// Whether results of that shape are large, begin on cache lines, and are no operands: non-temporal stores pay.
    bool (*stores_non_temporal)(const void* epilogue, extent rows, extent columns);
    /// Whether an operand of it, for a result of that shape, does not fit the caches.
    bool (*reads_memory)(const void* epilogue, extent rows, extent columns);
    /// Adds to a lookahead what `finish` reads and writes of a block; or what it reads alone.
    void (*prefetch_block)(const void* epilogue, const result_block& block, extent prefetches, lookahead& to);
    void (*prefetch_operands)(const void* epilogue, const result_block& block, extent prefetches, lookahead& to);
    plain_result<float> plain;             ///< where storing there is all that the epilogue does
    plain_result<bfloat16> plain_rounded;  ///< where storing there, rounded to bfloat16, is all that the epilogue does
    plain_result<const float> floats;      ///< the result, where it is one of floats
    square_sum* squares;                   ///< of that result, where somebody asks for them; else nullptr
};

/// What a plan asks of a product.
product_problem problem_of(const product_unit& unit, const cpu& device, const untyped_a& a, const untyped_b& b);

/// One product, all that a strategy's loops need of it.
struct product_task {
    const product_unit& unit;
    cpu& device;
    const untyped_a& a;
    const untyped_b& b;
    const untyped_epilogue& epilogue;
    const kernel::written_squares* squares;  ///< of the result, where somebody asks for them; else nullptr
    product_plan plan;
};

// What a typed epilogue is asked, part by part.

inline void prefetch_rows_of(const pack<>&, const result_block&, extent, lookahead&) {}
template <class First, class... Rest>
void prefetch_rows_of(const pack<First, Rest...>& matrices, const result_block& block, extent prefetches,
                      lookahead& to) {
    if constexpr (requires { matrices.first.stride; }) {
        constexpr extent size = sizeof *matrices.first.data;
        to.add({matrices.first.data + block.row * matrices.first.stride + block.column, block.rows,
                block.columns * size, matrices.first.stride * size},
               prefetches);
    }
    prefetch_rows_of(matrices.rest, block, prefetches, to);
}
template <class Operands>
void prefetch_rows_of(const scaled_sums<Operands>& scaled, const result_block& block, extent prefetches,
                      lookahead& to) {
    prefetch_rows_of(scaled.operands, block, prefetches, to);
}

inline bool any_is_large(const pack<>&, extent, extent) { return false; }
template <class First, class... Rest>
bool any_is_large(const pack<First, Rest...>& operands, extent rows, extent columns) {
    if constexpr (requires { operands.first.stride; }) {
        if (static_cast<std::size_t>(rows * columns) * sizeof *operands.first.data >= non_temporal_threshold)
            return true;
    }
    return any_is_large(operands.rest, rows, columns);
}
template <class Operands>
bool any_is_large(const scaled_sums<Operands>& scaled, extent rows, extent columns) {
    return any_is_large(scaled.operands, rows, columns);
}

template <class Result>
bool is_also_operand(const pack<>&, const Result*) {
    return false;
}
template <class First, class... Rest, class Result>
bool is_also_operand(const pack<First, Rest...>& operands, const Result* result) {
    return static_cast<const void*>(operands.first.data) == result || is_also_operand(operands.rest, result);
}
template <class Operands, class Result>
bool is_also_operand(const scaled_sums<Operands>& scaled, const Result* result) {
    return is_also_operand(scaled.operands, result);
}
template <class Operands>
bool all_non_temporal(const Operands&, const pack<>&, extent, extent) {
    return true;
}
template <class Operands, class First, class... Rest>
bool all_non_temporal(const Operands& operands, const pack<First, Rest...>& results, extent rows, extent columns) {
    constexpr extent size = sizeof *results.first.data;
    return kernel::stores_non_temporal(results.first.data, rows, columns * size, results.first.stride * size) &&
           !is_also_operand(operands, results.first.data) && all_non_temporal(operands, results.rest, rows, columns);
}

/// The functions of an untyped_epilogue for one of these types.
template <class Operands, class Results>
struct epilogue_functions {
    using epilogue = matmul_epilogue<Operands, Results>;

    static bool stores_non_temporal(const void* given, extent rows, extent columns) {
        const auto& e = *static_cast<const epilogue*>(given);
        return all_non_temporal(e.operands, e.results, rows, columns);
    }
    static bool reads_memory(const void* given, extent rows, extent columns) {
        return any_is_large(static_cast<const epilogue*>(given)->operands, rows, columns);
    }
    static void prefetch_operands(const void* given, const result_block& block, extent prefetches, lookahead& to) {
        prefetch_rows_of(static_cast<const epilogue*>(given)->operands, block, prefetches, to);
    }
    static void prefetch_block(const void* given, const result_block& block, extent prefetches, lookahead& to) {
        prefetch_rows_of(static_cast<const epilogue*>(given)->results, block, prefetches, to);
        prefetch_operands(given, block, prefetches, to);
    }

    /// Where the epilogue only stores sums in T.
    template <class T>
    static plain_result<T> plain_result_of(const epilogue& e) {
        using plain = matmul_epilogue<pack<>, pack<matmul_result<symbolic::argument<0>, T>>>;
        if constexpr (std::is_same_v<epilogue, plain>) {
            return {e.results.first.data, e.results.first.stride};
        } else {
            return {};
        }
    }
    /// The result of an epilogue that has one alone, of floats; nothing for any other.
    static plain_result<const float> floats_of(const epilogue& e) { return floats_of(e.results); }

  private:
    template <class Other>
    static plain_result<const float> floats_of(const Other&) {
        return {};
    }
    template <class Expression>
    static plain_result<const float> floats_of(const pack<matmul_result<Expression, float>>& results) {
        return {results.first.data, results.first.stride};
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/kernel/matmul/cpu/untyped.body.hpp>
#endif
