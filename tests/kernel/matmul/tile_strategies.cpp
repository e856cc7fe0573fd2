// SPDX-License-Identifier: MIT
/// \file
/// The strategies of matrix tiles (kernel/matmul/cpu/strategy/tiles.hpp) on tiles in plain memory with plain packing, on any
/// machine. Operands are small integers, so that every sum is exact in any order.
#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/matmul/cpu.hpp>

#include "kernel/product/software_tiles.hpp"
#include "support/random.hpp"

namespace kernel_matmul_tile_strategies_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using strategy = ht::detail::product_strategy;

struct sizes {
    extent rows, columns, depth;
};

/// c = ab + bias computed by this unit, with a and b stored row-major or transposed, compared element by element.
void multiply(ht::cpu& device, const sizes& s, bool a_is_transposed, bool b_is_transposed) {
    CAPTURE(s.rows);
    CAPTURE(s.columns);
    CAPTURE(s.depth);
    support::random data(static_cast<std::uint64_t>(s.rows * 1000 + s.columns));
    const std::vector<bfloat16> values = data.integers<bfloat16>(s.rows * s.depth, 4),
                                b = data.integers<bfloat16>(s.depth * s.columns, 4);
    ht::tensor<bfloat16, 1> a(device.memory(),
                              {s.rows * s.depth});  // aligned to cache lines, so that tiles may read it in place
    std::copy(values.begin(), values.end(), a.data());
    std::vector<float> bias = data.integers<float>(s.columns, 4), c(static_cast<std::size_t>(s.rows * s.columns), -1);
    const auto stored = [](bool is_transposed, extent rows, extent columns) {
        return is_transposed ? ht::shape<2>{1, rows} : ht::shape<2>{columns, 1};
    };
    const ht::view<const bfloat16, 2> va(a.data(), {s.rows, s.depth}, stored(a_is_transposed, s.rows, s.depth)),
        vb(b.data(), {s.depth, s.columns}, stored(b_is_transposed, s.depth, s.columns));
    const ht::view<float, 2> vc(c.data(), {s.rows, s.columns});
    const auto packing = support::software_tiles::plain_packing();
    ht::kernel::matmul<ht::cpu>::run_by(
        support::software_tiles::unit(), packing.a, packing.b, device, va, vb,
        ht::epilogue_of(ht::bias{ht::view<const float, 1>(bias.data(), {s.columns})}, vc));
    extent wrong = 0;
    for (extent i = 0; i < s.rows; ++i) {
        for (extent j = 0; j < s.columns; ++j) {
            float sum = bias[static_cast<std::size_t>(j)];
            for (extent p = 0; p < s.depth; ++p) sum += static_cast<float>(va(i, p)) * static_cast<float>(vb(p, j));
            wrong += vc(i, j) == sum ? 0 : 1;
        }
    }
    CHECK(wrong == 0);
}
/// The strategy chosen for this machine's caches.
strategy strategy_of(const ht::cpu& device, const sizes& s) {
    return ht::detail::plan_product({.m = s.rows,
                                     .n = s.columns,
                                     .k = s.depth,
                                     .unit = support::software_tiles::unit(),
                                     .threads = device.threads(),
                                     .caches = device.caches()})
        .strategy;
}

TEST_CASE(
    "strategies of tiles: exact on small integers, in all layouts, a in place, sums that wait for another pass of k") {
    bool is_a_stationary = false, is_shared_b = false;
    for (const int threads : {1, 3}) {
        ht::cpu device{{.threads = threads, .instruction_set = ht::isa::portable}};
        for (const sizes& s : {sizes{1, 1, 1},
                               {33, 65, 31},
                               {64, 100, 96},
                               {70, 40, 2100},
                               {290, 70, 300},
                               {320, 33, 2304},
                               {1700, 70, 33},
                               {40, 33, 0}}) {
            is_a_stationary |= strategy_of(device, s) == strategy::tiles_a_stationary;
            is_shared_b |= strategy_of(device, s) == strategy::tiles_shared_b;
            for (const bool a : {false, true}) {
                for (const bool b : {false, true}) multiply(device, s, a, b);
            }
        }
    }
    CHECK(is_a_stationary);
    CHECK(is_shared_b);
}

}  // namespace kernel_matmul_tile_strategies_tests
