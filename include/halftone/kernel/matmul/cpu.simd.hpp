// SPDX-License-Identifier: MIT
/// \file
/// The end of a product: the epilogue's expressions are applied to a block of float sums, and the results are stored.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/map/evaluate.hpp>
#include <halftone/kernel/matmul/epilogue.hpp>
#include <halftone/number/in_float.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <class T>
HALFTONE_INLINE f32 load_operand(const column_operand<T>& o, extent, extent column, int n) {
    return n == f32::lanes ? load(o.data + column) : load(o.data + column, n);
}
template <class T>
HALFTONE_INLINE f32 load_operand(const row_operand<T>& o, extent row, extent, int) {
    return splat(halftone::detail::in_float(o.data[row]));
}
template <class T>
HALFTONE_INLINE f32 load_operand(const matrix_operand<T>& o, extent row, extent column, int n) {
    const T* from = o.data + row * o.stride + column;
    return n == f32::lanes ? load(from) : load(from, n);
}

HALFTONE_INLINE void load_operands(const pack<>&, extent, extent, int, f32*) {}
template <class T, class... Rest>
HALFTONE_INLINE void load_operands(const pack<T, Rest...>& operands, extent row, extent column, int n, f32* to) {
    *to = load_operand(operands.first, row, column, n);
    load_operands(operands.rest, row, column, n, to + 1);
}

template <class T>
HALFTONE_INLINE void load_operands(const scaled_sums<T>& scaled, extent row, extent column, int n, f32* to) {
    load_operands(scaled.operands, row, column, n, to);
}

/// The factor of the sums, where an epilogue has none.
struct no_factor {};
template <class Operands>
HALFTONE_INLINE no_factor factor_of(const Operands&) {
    return {};
}
template <class T>
HALFTONE_INLINE f32 factor_of(const scaled_sums<T>& s) {
    return splat((s.first == nullptr ? 1.0f : *s.first) * (s.second == nullptr ? 1.0f : *s.second));
}
HALFTONE_INLINE f32 operator*(f32 sum, no_factor) { return sum; }

HALFTONE_INLINE void store_results(const pack<>&, extent, extent, int, const f32*) {}
template <class Result, class... Rest>
HALFTONE_INLINE void store_results(const pack<Result, Rest...>& results, extent row, extent column, int n,
                                   const f32* arguments) {
    const f32 value = evaluate(results.first.expression, arguments);
    auto* to = results.first.data + row * results.first.stride + column;
    if (n == f32::lanes) {
        store(to, value);
    } else {
        store(to, value, n);
    }
    store_results(results.rest, row, column, n, arguments);
}
/// Stores the results of two vectors of sums side by side.
HALFTONE_INLINE void store_pairs(const pack<>&, extent, extent, const f32*, const f32*, bool) {}
template <class Result, class... Rest>
HALFTONE_INLINE void store_pairs(const pack<Result, Rest...>& results, extent row, extent column, const f32* arguments,
                                 const f32* next_arguments, bool non_temporal) {
    const auto& e = results.first.expression;
    const f32 values[] = {evaluate(e, arguments), evaluate(e, next_arguments)};
    store_vectors<2>(results.first.data + row * results.first.stride + column, values, non_temporal);
    store_pairs(results.rest, row, column, arguments, next_arguments, non_temporal);
}

/// Finishes the block (rows, columns) whose first element is (row, column) of the result. Rows of sums are readable up to
/// whole vectors. `given` is a matmul_epilogue<Operands, Results>; `non_temporal`: pairs of vectors bypass the caches.
template <class Operands, class Results>
void finish_block(const void* given, const float* sums, extent sums_stride, extent row, extent column, extent rows,
                  extent columns, bool non_temporal) {
    const auto& epilogue = *static_cast<const matmul_epilogue<Operands, Results>*>(given);
    const auto factor = factor_of(epilogue.operands);
    const auto take = [&](extent i, extent j, int n, f32* arguments) {
        arguments[0] = load(sums + i * sums_stride + j) * factor;
        load_operands(epilogue.operands, row + i, column + j, n, arguments + 1);
    };
    for (extent i = 0; i < rows; ++i) {
        f32 arguments[1 + Operands::count], next_arguments[1 + Operands::count];
        extent j = 0;
        for (; j + 2 * f32::lanes <= columns; j += 2 * f32::lanes) {
            take(i, j, f32::lanes, arguments);
            take(i, j + f32::lanes, f32::lanes, next_arguments);
            store_pairs(epilogue.results, row + i, column + j, arguments, next_arguments, non_temporal);
        }
        for (; j < columns; j += f32::lanes) {
            const int n = static_cast<int>(columns - j < f32::lanes ? columns - j : f32::lanes);
            take(i, j, n, arguments);
            store_results(epilogue.results, row + i, column + j, n, arguments);
        }
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
