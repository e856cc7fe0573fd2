// SPDX-License-Identifier: MIT
/// \file
/// What an epilogue reads and writes: of a block, to be asked for before; and whether it goes past the caches.
#pragma once

#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/matmul/cpu/lookahead.hpp>
#include <halftone/kernel/matmul/epilogue.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled has what follows and is no template
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Rows and columns of a product's result.
struct result_block {
    extent row, column, rows, columns;
};

inline void add_rows(const pack<>&, const result_block&, extent, detail::lookahead&) {}
template <class First, class... Rest>
void add_rows(const pack<First, Rest...>& all, const result_block& block, extent prefetches, detail::lookahead& to) {
    if constexpr (requires { all.first.stride; }) {
        constexpr extent size = sizeof *all.first.data;
        to.add({all.first.data + block.row * all.first.stride + block.column, block.rows, block.columns * size,
                all.first.stride * size},
               prefetches);
    }
    add_rows(all.rest, block, prefetches, to);
}
template <class Operands>
void add_rows(const detail::scaled_sums<Operands>& scaled, const result_block& block, extent prefetches,
              detail::lookahead& to) {
    add_rows(scaled.operands, block, prefetches, to);
}

inline bool any_is_large(const pack<>&, extent, extent) { return false; }
template <class First, class... Rest>
bool any_is_large(const pack<First, Rest...>& operands, extent rows, extent columns) {
    if constexpr (requires { operands.first.stride; }) {
        if (static_cast<std::size_t>(rows * columns) * sizeof *operands.first.data >= detail::non_temporal_threshold)
            return true;
    }
    return any_is_large(operands.rest, rows, columns);
}
template <class Operands>
bool any_is_large(const detail::scaled_sums<Operands>& scaled, extent rows, extent columns) {
    return any_is_large(scaled.operands, rows, columns);
}
/// Whether an operand of a result of that shape is larger than the caches. `given` is a matmul_epilogue<Operands,
/// Results>.
template <class Operands, class Results>
bool reads_memory(const void* given, extent rows, extent columns) {
    return any_is_large(static_cast<const detail::matmul_epilogue<Operands, Results>*>(given)->operands, rows, columns);
}
/// Adds what finish_block reads of a block.
template <class Operands, class Results>
void expect_operands(const void* given, const result_block& block, extent prefetches, detail::lookahead& to) {
    add_rows(static_cast<const detail::matmul_epilogue<Operands, Results>*>(given)->operands, block, prefetches, to);
}
/// Adds what it reads and writes.
template <class Operands, class Results>
void expect_block(const void* given, const result_block& block, extent prefetches, detail::lookahead& to) {
    add_rows(static_cast<const detail::matmul_epilogue<Operands, Results>*>(given)->results, block, prefetches, to);
    expect_operands<Operands, Results>(given, block, prefetches, to);
}

template <class Result>
bool is_operand(const pack<>&, const Result*) {
    return false;
}
template <class First, class... Rest, class Result>
bool is_operand(const pack<First, Rest...>& operands, const Result* result) {
    return static_cast<const void*>(operands.first.data) == result || is_operand(operands.rest, result);
}
template <class Operands, class Result>
bool is_operand(const detail::scaled_sums<Operands>& scaled, const Result* result) {
    return is_operand(scaled.operands, result);
}
template <class Operands>
bool all_non_temporal(const Operands&, const pack<>&, extent, extent) {
    return true;
}
template <class Operands, class First, class... Rest>
bool all_non_temporal(const Operands& operands, const pack<First, Rest...>& results, extent rows, extent columns) {
    constexpr extent size = sizeof *results.first.data;
    return stores_non_temporal(results.first.data, rows, columns * size, results.first.stride * size) &&
           !is_operand(operands, results.first.data) && all_non_temporal(operands, results.rest, rows, columns);
}

/// Whether all results of a product of that shape are large, lie on whole lines of the caches, and are not read as
/// operands. `given` is a matmul_epilogue<Operands, Results>.
template <class Operands, class Results>
bool results_non_temporal(const void* given, extent rows, extent columns) {
    const auto& epilogue = *static_cast<const detail::matmul_epilogue<Operands, Results>*>(given);
    return all_non_temporal(epilogue.operands, epilogue.results, rows, columns);
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
