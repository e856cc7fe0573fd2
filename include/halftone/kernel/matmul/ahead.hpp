// SPDX-License-Identifier: MIT
/// \file
/// What an epilogue reads and writes of a block, to be asked for before.
#pragma once

#include <halftone/kernel/matmul/epilogue.hpp>
#include <halftone/kernel/product/lookahead.hpp>

namespace halftone::inline HALFTONE_ABI::kernel {

/// Rows and columns of a product's result.
struct result_block {
    extent row, column, rows, columns;
};

inline void add_rows(const pack<>&, const result_block&, extent, lookahead&) {}
template <class First, class... Rest>
void add_rows(const pack<First, Rest...>& all, const result_block& block, extent asks, lookahead& to) {
    if constexpr (requires { all.first.stride; }) {
        constexpr extent size = sizeof *all.first.data;
        to.add({all.first.data + block.row * all.first.stride + block.column, block.rows, block.columns * size,
                all.first.stride * size},
               asks);
    }
    add_rows(all.rest, block, asks, to);
}
template <class Operands>
void add_rows(const scaled_sums<Operands>& scaled, const result_block& block, extent asks, lookahead& to) {
    add_rows(scaled.operands, block, asks, to);
}

/// Adds what finish_block needs of a block. `given` is a matmul_epilogue<Operands, Results>.
template <class Operands, class Results>
void expect_block(const void* given, const result_block& block, extent asks, lookahead& to) {
    const auto& epilogue = *static_cast<const matmul_epilogue<Operands, Results>*>(given);
    add_rows(epilogue.results, block, asks, to);
    add_rows(epilogue.operands, block, asks, to);
}

}  // namespace halftone::inline HALFTONE_ABI::kernel
