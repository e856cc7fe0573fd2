// SPDX-License-Identifier: MIT
/// \file
/// Product units and their packing, compared with three plain loops. Operands are small integers, so that every sum is exact
/// in any order, and the comparison is equality.
#pragma once

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/matmul/cpu/unit/choose.hpp>

#include "support/guarded.hpp"
#include "support/random.hpp"

namespace product_test {

namespace ht = halftone;
using ht::extent;
using support::guarded;

/// Memory aligned to cache lines, like scratch memory.
struct aligned_bytes {
    explicit aligned_bytes(std::size_t count) : storage(count + 64, 0xa5) {}
    std::byte* data() {
        const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
        return reinterpret_cast<std::byte*>((address + 63) & ~std::uintptr_t{63});
    }
    std::vector<unsigned char> storage;
};

inline extent rounded_up(extent n, extent unit) { return (n + unit - 1) / unit * unit; }

/// Which axis of an operand is contiguous.
enum class order { rows, columns };

/// A matrix in memory of exactly its size, with a gap of `gap` elements between its rows (or columns).
template <class T>
struct matrix {
    extent rows, columns, row_stride, column_stride;
    guarded<T> memory;

    matrix(support::random& data, extent r, extent c, order contiguous, extent gap)
        : rows(r),
          columns(c),
          row_stride(contiguous == order::rows ? c + gap : 1),
          column_stride(contiguous == order::rows ? 1 : r + gap),
          memory((r - 1) * row_stride + (c - 1) * column_stride + 1, 3) {
        const std::vector<T> values = data.integers<T>(r * c, 4);
        for (extent i = 0; i < r; ++i) {
            for (extent j = 0; j < c; ++j)
                memory[i * row_stride + j * column_stride] = values[static_cast<std::size_t>(i * c + j)];
        }
    }
    double operator()(extent i, extent j) const {
        return static_cast<double>(static_cast<float>(memory[i * row_stride + j * column_stride]));
    }
};

struct packed_sizes {
    extent rows, k, columns;
};

/// Packs, multiplies, adds the product a second time, and compares every element; also by half a panel, if that is enough, and with
/// k-major a, if the unit can pack it.
template <class T>
void multiply_exactly(const ht::detail::product_unit& unit, const ht::detail::product_packing<T>& packing, const packed_sizes& s,
                      order a_order, order b_order) {
    CAPTURE(s.rows);
    CAPTURE(s.k);
    CAPTURE(s.columns);
    support::random data(static_cast<std::uint64_t>(s.rows * 1000000 + s.k * 1000 + s.columns));
    const matrix<T> a(data, s.rows, s.k, a_order, 5), b(data, s.k, s.columns, b_order, 3);
    aligned_bytes block(unit.block_bytes(s.rows)), panel(unit.panel_bytes(s.k));
    packing.pack_block(a.memory.data(), a.row_stride, a.column_stride, s.rows, s.k, block.data());
    packing.pack_panel(b.memory.data(), b.row_stride, b.column_stride, s.k, s.columns, panel.data());

    const extent rows = rounded_up(s.rows, unit.rows), stride = unit.columns + 16;
    const auto multiply_twice = [&](extent columns, const auto& multiply) {
        const guarded<float> c(rows * stride, 0);
        for (extent i = 0; i < rows * stride; ++i) c[i] = 77;
        unit.begin_worker();
        multiply(c.data(), false);
        multiply(c.data(), true);
        unit.end_worker();

        CHECK(c.intact());
        for (extent i = 0; i < s.rows; ++i) {
            for (extent j = 0; j < stride; ++j) {
                double sum = 0;
                for (extent p = 0; j < s.columns && p < s.k; ++p) sum += a(i, p) * b(p, j);
                const double got = static_cast<double>(c[i * stride + j]), expected = j < columns ? 2 * sum : 77;
                if (got != expected) FAIL("element ", i, ", ", j, ": got ", got, ", expected ", expected);
            }
        }
    };
    const extent k = unit.padded(s.k);
    multiply_twice(unit.columns, [&](float* c, bool add) {
        unit.multiply(s.rows, k, block.data(), panel.data(), c, stride, add, nullptr);
    });
    if (!unit.vectors) return;
    ht::detail::lookahead ahead;
    const auto multiply_block = [&](const ht::detail::block_of_a& a_block, extent length) {
        for (ht::detail::lookahead* const asks : {static_cast<ht::detail::lookahead*>(nullptr), &ahead}) {
            multiply_twice(unit.columns, [&](float* c, bool add) {
                unit.vectors->multiply(s.rows, length, a_block, panel.data(), c, stride, add, asks);
            });
            if (a_block.k_major || s.columns > unit.columns / 2) continue;
            multiply_twice(unit.columns / 2, [&](float* c, bool add) {
                unit.vectors->multiply_half_panel(s.rows, length, a_block, panel.data(), c, stride, add, asks);
            });
        }
    };
    multiply_block({block.data(), ht::detail::panel_stride}, k);
    if (packing.a.pack_k_major == ht::detail::no_function || a_order != order::columns) return;
    const extent group_stride = ht::detail::k_major_rows * rounded_up(s.k, 8);
    const guarded<std::byte> k_major(rounded_up(s.rows, ht::detail::k_major_rows) / ht::detail::k_major_rows * group_stride * unit.element, 64);
    packing.a.pack_k_major(a.memory.data(), a.column_stride, s.rows, s.k, k_major.data(), group_stride);
    CHECK(k_major.intact());
    multiply_block({k_major.data(), group_stride, true}, unit.run(s.k));
}

template <class T>
void multiply_all(const ht::detail::product_unit& unit, const ht::detail::product_packing<T>& packing) {
    const extent w = unit.columns;
    const packed_sizes sizes[] = {{1, 1, 1},   {2, 3, w},   {5, 16, w - 1},     {12, 17, 2},  {13, 31, w},
                                  {31, 32, 3}, {32, 33, w}, {33, 64, w},        {64, 100, w}, {96, 255, w / 2},
                                  {7, 256, w}, {100, 1, w}, {16, 15, w / 2 + 1}};
    for (const packed_sizes& s : sizes) {
        for (const order a : {order::rows, order::columns}) {
            for (const order b : {order::rows, order::columns}) multiply_exactly(unit, packing, s, a, b);
        }
    }
}

}  // namespace product_test
