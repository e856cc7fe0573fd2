// SPDX-License-Identifier: MIT
/// \file
/// The end of a product on a GPU: neighbouring sums of a row go through the epilogue's expressions into the results.
///
///     finish_row(simt, epilogue, access, row, column, columns, sums);      // sums: N floats from (row, column) on
///
/// Expressions are evaluated in float and rounded once. All operands are read before a result is stored, so a result may
/// be an operand.
#pragma once

#include <halftone/kernel/map/scalar.hpp>
#include <halftone/kernel/matmul/epilogue.hpp>
#include <halftone/kernel/matmul/operand.hpp>

namespace halftone::inline HALFTONE_ABI::kernel::on_device {

template <class T>
HALFTONE_HD HALFTONE_INLINE global_span<const T> rest_of(const column_operand<T>& o, int, int column, int columns) {
    return {o.data + column, columns - column};
}
template <class T>
HALFTONE_HD HALFTONE_INLINE global_span<const T> rest_of(const matrix_operand<T>& o, int row, int column, int columns) {
    return {o.data + row * o.stride + column, columns - column};
}
template <class E, class T>
HALFTONE_HD HALFTONE_INLINE global_span<T> rest_of(const matmul_result<E, T>& r, int row, int column, int columns) {
    return {r.data + row * r.stride + column, columns - column};
}

HALFTONE_KERNEL template <int N, class Simt>
HALFTONE_HD HALFTONE_INLINE void load_operands(Simt, const pack<>&, row_access, int, int, int, vec<float, N>*) {}
HALFTONE_KERNEL template <int N, class Simt, class Operand, class... Rest>
HALFTONE_HD HALFTONE_INLINE void load_operands(Simt simt, const pack<Operand, Rest...>& operands, row_access access, int row, int column, int columns, vec<float, N>* to) {
    *to = load_some<N>(simt, rest_of(operands.first, row, column, columns), access);
    load_operands(simt, operands.rest, access, row, column, columns, to + 1);
}

HALFTONE_KERNEL template <int Arguments, int N, class Simt>
HALFTONE_HD HALFTONE_INLINE void store_results(Simt, const pack<>&, row_access, int, int, int, const vec<float, N>*) {}
HALFTONE_KERNEL template <int Arguments, int N, class Simt, class Result, class... Rest>
HALFTONE_HD HALFTONE_INLINE void store_results(Simt simt, const pack<Result, Rest...>& results, row_access access, int row, int column, int columns, const vec<float, N>* arguments) {
    vec<float, N> values;
    HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
        float of_element[Arguments];
        HALFTONE_UNROLL for (int i = 0; i < Arguments; ++i) of_element[i] = arguments[i][e];
        values[e] = scalar::evaluate(results.first.expression, of_element);
    }
    store_some(simt, rest_of(results.first, row, column, columns), access, values);
    store_results<Arguments>(simt, results.rest, access, row, column, columns, arguments);
}

/// Finishes the sums of (row, column) and its next neighbours; those from number `columns` of the row on do not exist.
HALFTONE_KERNEL template <int N, class Simt, class Operands, class Results>
HALFTONE_HD HALFTONE_INLINE void finish_row(Simt simt, const matmul_epilogue<Operands, Results>& epilogue, row_access access, int row, int column, int columns, const vec<float, N>& sums) {
    constexpr int arguments = 1 + static_cast<int>(Operands::count);
    vec<float, N> values[arguments];
    values[0] = sums;
    load_operands(simt, epilogue.operands, access, row, column, columns, values + 1);
    store_results<arguments>(simt, epilogue.results, access, row, column, columns, values);
}

template <class T>
row_access access_to(const column_operand<T>& o) {
    return access_to(o.data, 0);
}
template <class T>
row_access access_to(const matrix_operand<T>& o) {
    return access_to(o.data, o.stride);
}
template <class E, class T>
row_access access_to(const matmul_result<E, T>& r) {
    return access_to(r.data, r.stride);
}
template <class... T>
row_access access_to(const pack<T...>& all) {
    if constexpr (sizeof...(T) == 0) {
        return row_access::chunks;
    } else {
        return access_to(all.first) & access_to(all.rest);
    }
}
/// How all rows that an epilogue touches may be touched.
template <class Operands, class Results>
row_access access_to(const matmul_epilogue<Operands, Results>& epilogue) {
    return access_to(epilogue.operands) & access_to(epilogue.results);
}

}  // namespace halftone::inline HALFTONE_ABI::kernel::on_device
