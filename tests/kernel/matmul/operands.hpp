// SPDX-License-Identifier: MIT
/// \file
/// Matrices for products: in any layout, at any alignment, with guard bytes around their memory.
///
///     const matmul_test::operand<float> a(rows, depth, matmul_test::layouts[1], matmul_test::small_integers{1});
///     a.view
#pragma once

#include <cstdint>

#include <doctest/doctest.h>

#include <halftone/kernel/matmul/matmul.hpp>

#include "support/guarded.hpp"
#include "support/random.hpp"

namespace matmul_test {

namespace ht = halftone;
using ht::extent;

enum class order { rows, columns };

/// Which axis is contiguous, the gap between its lines, and the distance of the first element from a
/// vector-aligned address.
struct layout {
    order contiguous;
    extent gap, offset;
};
inline constexpr layout layouts[] = {
    {order::rows, 0, 0}, {order::columns, 0, 0}, {order::rows, 3, 1}, {order::columns, 5, 7}};

/// The same layout with another gap and without offset: rows or columns begin at multiples of this number of elements, whatever
/// their length. 8 elements of 16 bits or more are at least 16 bytes.
inline layout aligned(const layout& l, extent rows, extent columns, extent multiple = 8) {
    const extent length = l.contiguous == order::rows ? columns : rows;
    return {l.contiguous, (multiple - length % multiple) % multiple + multiple * (l.gap > 0 ? 1 : 0),
            l.offset > 0 ? multiple : 0};
}

/// Integers of magnitude at most 4: every sum of up to 2^20 products of two of them is exact in any order.
struct small_integers {
    std::uint32_t seed;
    float operator()(extent i, extent j) const {
        std::uint32_t h = seed * 0x9e3779b9u + static_cast<std::uint32_t>(i) * 0x85ebca6bu +
                          static_cast<std::uint32_t>(j) * 0xc2b2ae35u;
        h = (h ^ h >> 15) * 0x2c1b3c6du;
        return static_cast<float>(static_cast<int>((h >> 16) % 9) - 4);
    }
};

/// Normally distributed numbers.
struct normals {
    explicit normals(std::uint64_t seed, double of_deviation = 1) : data(seed), deviation(of_deviation) {}
    float operator()(extent, extent) { return static_cast<float>(deviation * data.normal()); }
    support::random data;
    double deviation;
};

template <class T>
struct operand {
    support::guarded<T> memory;
    ht::view<T, 2> view;

    /// value(i, j) returns the elements.
    template <class Value>
    operand(extent rows, extent columns, const layout& l, Value value)
        : operand(rows, columns, l.contiguous == order::rows ? columns + l.gap : 1,
                  l.contiguous == order::rows ? 1 : rows + l.gap, l.offset) {
        for (extent i = 0; i < rows; ++i) {
            for (extent j = 0; j < columns; ++j) view(i, j) = T(value(i, j));
        }
    }
    /// Undefined contents.
    operand(extent rows, extent columns, const layout& l)
        : operand(rows, columns, l.contiguous == order::rows ? columns + l.gap : 1,
                  l.contiguous == order::rows ? 1 : rows + l.gap, l.offset) {}

    /// Whether nothing around the matrix or between its lines was written.
    bool intact() const {
        if (!memory.intact()) return false;
        const bool by_rows = view.stride_of(1) == 1;
        const extent lines = view.extent_of(by_rows ? 0 : 1), length = view.extent_of(by_rows ? 1 : 0),
                     step = view.stride_of(by_rows ? 0 : 1);
        for (extent line = 0; line + 1 < lines; ++line) {
            const auto* bytes = reinterpret_cast<const unsigned char*>(memory.data() + line * step + length);
            for (extent b = 0; b < (step - length) * static_cast<extent>(sizeof(T)); ++b) {
                if (bytes[b] != 0xff) return false;
            }
        }
        return true;
    }

  private:
    operand(extent rows, extent columns, extent row_stride, extent column_stride, extent offset)
        : memory(rows == 0 || columns == 0 ? 0 : (rows - 1) * row_stride + (columns - 1) * column_stride + 1, offset),
          view(memory.data(), {rows, columns}, {row_stride, column_stride}) {}
};

template <class T>
double number(T x) {
    return static_cast<double>(static_cast<float>(x));
}

}  // namespace matmul_test
