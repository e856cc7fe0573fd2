// SPDX-License-Identifier: MIT
/// \file
/// The epilogue of a product on a GPU: applies its expressions to consecutive sums of a row and stores the results.
///
///     finish_row(simt, epilogue, access, row, column, columns, sums);      // sums: N floats from (row, column) on
///
/// Expressions are evaluated in float and rounded once. All operands are read before a result is stored, so that a
/// result may be an operand.
#pragma once

#include <halftone/kernel/map/expression/scalar.hpp>
#include <halftone/kernel/matmul/device/operand.hpp>
#include <halftone/kernel/matmul/epilogue.hpp>
#include <halftone/number/in_float.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

template <class T>
HALFTONE_HD HALFTONE_INLINE global_span<const T> rest_of(const detail::column_operand<T>& o, int, int column, int columns) {
    return {o.data + column, columns - column};
}
template <class T>
HALFTONE_HD HALFTONE_INLINE global_span<const T> rest_of(const detail::matrix_operand<T>& o, int row, int column, int columns) {
    return {o.data + row * o.stride + column, columns - column};
}
template <class E, class T>
HALFTONE_HD HALFTONE_INLINE global_span<T> rest_of(const detail::matmul_result<E, T>& r, int row, int column, int columns) {
    return {r.data + row * r.stride + column, columns - column};
}

HALFTONE_KERNEL template <int N, class Simt, class Operand>
HALFTONE_HD HALFTONE_INLINE vec<float, N> load_operand(Simt simt, const Operand& o, row_access access, int row, int column,
                                                       int columns) {
    return load_some<N>(simt, rest_of(o, row, column, columns), access);
}
HALFTONE_KERNEL template <int N, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE vec<float, N> load_operand(Simt simt, const detail::row_operand<T>& o, row_access, int row,
                                                       int column, int columns) {
    float value = 0;  // of a row that does not exist: it has no columns
    if (column < columns) value = detail::in_float(simt.load(global_span<const T>{o.data, row + 1}, row));
    vec<float, N> all;
    HALFTONE_UNROLL for (int e = 0; e < N; ++e) all[e] = value;
    return all;
}

HALFTONE_KERNEL template <int N, class Simt>
HALFTONE_HD HALFTONE_INLINE void load_operands(Simt, const pack<>&, row_access, int, int, int, vec<float, N>*) {}
HALFTONE_KERNEL template <int N, class Simt, class Operand, class... Rest>
HALFTONE_HD HALFTONE_INLINE void load_operands(Simt simt, const pack<Operand, Rest...>& operands, row_access access,
                                               int row, int column, int columns, vec<float, N>* to) {
    *to = load_operand<N>(simt, operands.first, access, row, column, columns);
    load_operands(simt, operands.rest, access, row, column, columns, to + 1);
}

HALFTONE_KERNEL template <int N, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE void load_operands(Simt simt, const detail::scaled_sums<T>& scaled, row_access access, int row,
                                               int column, int columns, vec<float, N>* to) {
    load_operands(simt, scaled.operands, access, row, column, columns, to);
}

/// The sums times their factors.
HALFTONE_KERNEL template <int N, class Simt, class Operands>
HALFTONE_HD HALFTONE_INLINE vec<float, N> scale_sums(Simt, const Operands&, const vec<float, N>& sums) {
    return sums;
}
HALFTONE_KERNEL template <int N, class Simt, class T>
HALFTONE_HD HALFTONE_INLINE vec<float, N> scale_sums(Simt simt, const detail::scaled_sums<T>& scaled, vec<float, N> sums) {
    const float first = scaled.first == nullptr ? 1.0f : simt.load(global_span<const float>{scaled.first, 1}, 0);
    const float second = scaled.second == nullptr ? 1.0f : simt.load(global_span<const float>{scaled.second, 1}, 0);
    HALFTONE_UNROLL for (int e = 0; e < N; ++e) sums[e] = sums[e] * (first * second);
    return sums;
}

/// Evaluates an expression of that many arguments for N consecutive elements.
template <int Arguments, int N, class E>
HALFTONE_HD HALFTONE_INLINE vec<float, N> evaluate_each(const E& expression, const vec<float, N>* arguments) {
    vec<float, N> values;
    HALFTONE_UNROLL for (int e = 0; e < N; ++e) {
        float of_element[Arguments];
        HALFTONE_UNROLL for (int i = 0; i < Arguments; ++i) of_element[i] = arguments[i][e];
        values[e] = scalar::evaluate(expression, of_element);
    }
    return values;
}

HALFTONE_KERNEL template <int Arguments, int N, class Simt>
HALFTONE_HD HALFTONE_INLINE void store_results(Simt, const pack<>&, row_access, int, int, int, const vec<float, N>*) {}
HALFTONE_KERNEL template <int Arguments, int N, class Simt, class Result, class... Rest>
HALFTONE_HD HALFTONE_INLINE void store_results(Simt simt, const pack<Result, Rest...>& results, row_access access,
                                               int row, int column, int columns, const vec<float, N>* arguments) {
    store_some(simt, rest_of(results.first, row, column, columns), access,
               evaluate_each<Arguments>(results.first.expression, arguments));
    store_results<Arguments>(simt, results.rest, access, row, column, columns, arguments);
}

template <int N, class Operands, class Results>
struct finish_row_part {
    const detail::matmul_epilogue<Operands, Results>& epilogue;
    row_access access;
    int row, column, columns;
    const vec<float, N>& sums;

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void operator()(Simt simt) const {
        constexpr int arguments = 1 + static_cast<int>(Operands::count);
        vec<float, N> values[arguments];
        values[0] = scale_sums(simt, epilogue.operands, sums);
        load_operands(simt, epilogue.operands, access, row, column, columns, values + 1);
        store_results<arguments>(simt, epilogue.results, access, row, column, columns, values);
    }
};
/// Completes the sums of (row, column) and the following columns; columns from `columns` on do not exist.
HALFTONE_KERNEL template <int N, class Simt, class Operands, class Results>
HALFTONE_HD HALFTONE_INLINE void finish_row(Simt simt, const detail::matmul_epilogue<Operands, Results>& epilogue,
                                            row_access access, int row, int column, int columns,
                                            const vec<float, N>& sums) {
    run_part(simt, finish_row_part<N, Operands, Results>{epilogue, access, row, column, columns, sums});
}

/// An epilogue's operands and results for another matrix of a batch, at this distance in elements, which results and
/// operands that are matrices have; those that are one row or column serve the whole batch.
template <class T>
HALFTONE_HD HALFTONE_INLINE detail::column_operand<T> offset_by(const detail::column_operand<T>& o, extent) {
    return o;
}
template <class T>
HALFTONE_HD HALFTONE_INLINE detail::row_operand<T> offset_by(const detail::row_operand<T>& o, extent) {
    return o;
}
template <class T>
HALFTONE_HD HALFTONE_INLINE detail::matrix_operand<T> offset_by(const detail::matrix_operand<T>& o, extent by) {
    return {o.data + by, o.stride};
}
template <class E, class T>
HALFTONE_HD HALFTONE_INLINE detail::matmul_result<E, T> offset_by(const detail::matmul_result<E, T>& r, extent by) {
    return {r.expression, r.data + by, r.stride};
}
HALFTONE_HD HALFTONE_INLINE pack<> offset_by(const pack<>& none, extent) { return none; }
template <class First, class... Rest>
HALFTONE_HD HALFTONE_INLINE pack<First, Rest...> offset_by(const pack<First, Rest...>& all, extent by) {
    return {offset_by(all.first, by), offset_by(all.rest, by)};
}
template <class Operands, class Results>
HALFTONE_HD HALFTONE_INLINE detail::matmul_epilogue<Operands, Results> offset_by(
    const detail::matmul_epilogue<Operands, Results>& e, extent by) {
    return {offset_by(e.operands, by), offset_by(e.results, by)};
}

/// The results of kernels that sum a part of k only: unchanged float sums.
using partial_results = pack<detail::matmul_result<symbolic::argument<0>, float>>;
template <class Operands, class Results>
inline constexpr bool is_partial = std::is_same_v<Operands, pack<>> && std::is_same_v<Results, partial_results>;

/// A tile's position: its number, or its first row and column.
struct tile_place {
    int row, column;
};

/// The position of tile number `number` in the launch order. Tiles that are computed at the same time are close
/// together, eight rows of tiles by some columns, so that they share operands in the L2 cache.
HALFTONE_HD HALFTONE_INLINE tile_place place_in_turn(int number, int rows, int columns) {
    constexpr int together = 8;
    const int in_group = together * columns, group = number / in_group, in_it = number % in_group;
    const int left = rows - group * together, high = left < together ? left : together;
    return {group * together + in_it % high, in_it / high};
}

/// The part of k that a block sums, chosen by its z: some panels; their sums are stored in a matrix of the part's own.
struct part_of_depth {
    int panels = std::numeric_limits<int>::max();  // in each part; the last one may have fewer
    extent elements = 0;                           // distance between the parts' matrices

    HALFTONE_HD HALFTONE_INLINE int count(int all) const { return all <= panels ? 1 : detail::ceil_div(all, panels); }
    HALFTONE_HD HALFTONE_INLINE int first(int part) const { return part * panels; }
    HALFTONE_HD HALFTONE_INLINE int length(int all, int first) const {
        return all - first < panels ? all - first : panels;
    }
    template <class Operands, class Results>
    HALFTONE_HD HALFTONE_INLINE detail::matmul_epilogue<Operands, Results> end(int part,
                                                                       detail::matmul_epilogue<Operands, Results> e) const {
        if constexpr (is_partial<Operands, Results>) e.results.first.data += part * elements;
        return e;
    }
};

/// Adds several partial sums from memory in order and applies an epilogue, eight consecutive elements a thread.
template <class Operands, class Results>
struct finish_kernel {
    static constexpr int threads = 256, min_blocks = 0;
    static constexpr word shared_bytes = 0;
    static constexpr bool has_parts = false;

    global_span<const float> sums;
    extent leading;
    detail::matmul_epilogue<Operands, Results> epilogue;
    row_access access;
    int first_row, rows, columns;
    int parts = 1;
    extent part_elements = 0;

    grid_shape grid() const { return simt::blocks_for(static_cast<extent>(rows) * eights(), threads); }

    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD void operator()(Simt simt) const {
        run(simt, 0);
    }
    /// For another matrix of a batch: its sums are `by_sums` elements further on, its results `by_results`.
    HALFTONE_HD HALFTONE_INLINE finish_kernel of_matrix(extent number, extent by_sums, extent,
                                                        extent by_results) const {
        finish_kernel k = *this;
        k.sums.data += number * by_sums;
        k.epilogue = offset_by(epilogue, number * by_results);
        return k;
    }
    HALFTONE_KERNEL template <class Simt>
    HALFTONE_HD HALFTONE_INLINE void run(Simt simt, int) const {
        const extent i = static_cast<extent>(simt.block().x) * threads + simt.thread();
        if (i >= static_cast<extent>(rows) * eights()) return;
        const int row = static_cast<int>(i / eights()), column = static_cast<int>(i % eights()) * 8;
        vec<float, 8> mine =
            load_some<8>(simt, sums.part(row * leading + column, columns - column), row_access::chunks);
        for (int p = 1; p < parts; ++p) {
            const vec<float, 8> more = load_some<8>(
                simt, sums.part(p * part_elements + row * leading + column, columns - column), row_access::chunks);
            HALFTONE_UNROLL for (int e = 0; e < 8; ++e) mine[e] += more[e];
        }
        finish_row(simt, epilogue, access, first_row + row, column, columns, mine);
    }

  private:
    HALFTONE_HD HALFTONE_INLINE int eights() const { return detail::ceil_div(columns, 8); }
};

template <class T>
row_access access_to(const detail::column_operand<T>& o) {
    return access_to(o.data, 0);
}
template <class T>
row_access access_to(const detail::row_operand<T>&) {
    return row_access::chunks;
}
template <class T>
row_access access_to(const detail::matrix_operand<T>& o) {
    return access_to(o.data, o.stride);
}
template <class E, class T>
row_access access_to(const detail::matmul_result<E, T>& r) {
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
template <class T>
row_access access_to(const detail::scaled_sums<T>& scaled) {
    return access_to(scaled.operands);
}
/// The kind of access that the rows of all of an epilogue's operands and results allow.
template <class Operands, class Results>
row_access access_to(const detail::matmul_epilogue<Operands, Results>& epilogue) {
    return access_to(epilogue.operands) & access_to(epilogue.results);
}

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
