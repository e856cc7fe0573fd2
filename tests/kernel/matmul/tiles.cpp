// SPDX-License-Identifier: MIT
/// \file
/// matmul on matrix tiles (kernel/matmul/cpu/strategy/tiles.hpp): on AMX's, and on tiles in plain memory wherever the packing
/// runs. Operands are small integers, so that every sum is exact in any order.
#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include "kernel/matmul/checks.hpp"
#include "kernel/matmul/each_set.hpp"
#include "kernel/product/software_tiles.hpp"

#if defined(__x86_64__)

namespace ht = halftone;

namespace {

/// A CPU whose matmul uses the unit for tiles: with AMX, or emulated in memory.
struct cpu_with_bfloat16_tiles : ht::cpu {
    using ht::cpu::cpu;
};

}  // namespace

template <>
struct ht::kernel::matmul<cpu_with_bfloat16_tiles> {
    template <class Compute, class A, class B, class Operands, class Results>
    static void run(ht::cpu& device, const view<A, 2>& a, const view<B, 2>& b,
                    const ht::detail::matmul_epilogue<Operands, Results>& epilogue, square_sum* squares = nullptr) {
        static_assert(std::is_same_v<Compute, bfloat16>);
        using a_type = std::remove_const_t<A>;
        using b_type = std::remove_const_t<B>;
        const bool has_tiles = device.instruction_set() == isa::amx;
        using namespace ht::detail;
        const product_unit unit = has_tiles ? matmul_unit_for<Compute>(device) : support::software_tiles::unit();
        const a_packing<a_type> of_a{.pack = &avx512_bf16::pack_a_bf16<a_type>, .has_unit_type = std::is_same_v<a_type, bfloat16>};
        const b_packing<b_type> of_b{.pack = &avx512_bf16::pack_b_bf16<b_type>};
        matmul<cpu>::run_by(unit, of_a, of_b, device, a, b, epilogue, squares);
    }
};

namespace {

using ht::bfloat16;
using ht::extent;
using matmul_test::operand;
using matmul_test::sizes;

/// Runs test(device) with tiles emulated in memory, and with AMX.
template <class Test>
void on_all_tiles(int threads, const Test& test) {
    support::for_each_of({ht::isa::avx512, ht::isa::amx}, [&](ht::isa set) {
        cpu_with_bfloat16_tiles device{{.threads = threads, .instruction_set = set}};
        test(device);
    });
}

template <class A, class B, class C>
void multiply_all(std::initializer_list<sizes> all) {
    for (const sizes& s : all) {
        const std::vector<double> want = matmul_test::exact_product(s);
        on_all_tiles(s.rows % 2 == 0 ? 1 : 2, [&](auto& device) {
            matmul_test::multiply_in_layouts<ht::amp_bf16, A, B, C>(device, s, want, 10000);
        });
    }
}

TEST_CASE("matmul on tiles: exact on small integers, in all layouts") {
    SUBCASE("bf16") {
        multiply_all<bfloat16, bfloat16, bfloat16>({{1, 1, 1}, {2, 3, 5}, {33, 65, 31}, {97, 100, 129}, {64, 300, 40}, {290, 40, 33}});
    }
    SUBCASE("bf16 and fp32") { multiply_all<bfloat16, float, float>({{5, 257, 70}, {32, 64, 33}}); }
}

/// Operands aligned to cache lines, for which a is read and large results are written directly.
template <class C>
void multiply_on_lines(cpu_with_bfloat16_tiles& device, const sizes& s, extent step) {
    const matmul_test::small_integers a_values{1}, b_values{2};
    const extent stride = (s.depth + 31) / 32 * 32;
    ht::tensor<bfloat16, 2> lines(device.memory(), {s.rows, stride}), b(device.memory(), {s.depth, s.columns});
    ht::tensor<C, 2> c(device.memory(), {s.rows, s.columns});
    const ht::view<bfloat16, 2> a(lines.data(), {s.rows, s.depth}, {stride, 1});
    for (extent i = 0; i < s.rows; ++i) {
        for (extent p = 0; p < stride; ++p) lines(i, p) = bfloat16(p < s.depth ? a_values(i, p) : HUGE_VALF);
    }
    for (extent p = 0; p < s.depth; ++p) {
        for (extent j = 0; j < s.columns; ++j) b(p, j) = bfloat16(b_values(p, j));
    }
    ht::matmul<ht::amp_bf16>(device, a, b, c);
    for (extent i = 0; i < s.rows; i += step) {
        for (extent j = 0; j < s.columns; j += step) {
            double sum = 0;
            for (extent p = 0; p < s.depth; ++p)
                sum += static_cast<double>(a_values(i, p)) * static_cast<double>(b_values(p, j));
            const auto want = static_cast<float>(C(static_cast<float>(sum)));
            if (static_cast<float>(c(i, j)) != want)
                FAIL("element ", i, ", ", j, ": got ", static_cast<float>(c(i, j)), ", expected ", want);
        }
    }
}
TEST_CASE("matmul on tiles: rows of a in place and packed, sums that are stored between two passes of k") {
    on_all_tiles(2, [](cpu_with_bfloat16_tiles& device) {
        for (const sizes& s : {sizes{64, 320, 96},
                               {10, 2100, 40},
                               {32, 2080, 32},
                               {40, 64, 33},
                               {64, 300, 40},
                               {264, 2070, 20},
                               {1570, 33, 32}})
            multiply_on_lines<float>(device, s, 1);
    });
}

TEST_CASE("matmul on AMX: slices of columns, all layouts of shared operands, non-temporal stores of results") {
    support::for_each_of({ht::isa::amx}, [](ht::isa set) {
        cpu_with_bfloat16_tiles device{{.threads = 2, .instruction_set = set}};
        for (const sizes& s : {sizes{290, 5000, 70}, {300, 2080, 33}, {1600, 33, 70}}) {
            const std::vector<double> want = matmul_test::exact_product(s);
            matmul_test::multiply_in_layouts<ht::amp_bf16, bfloat16, bfloat16, float>(device, s, want, 1);
        }
        multiply_on_lines<float>(device, {264, 100000, 100}, 13);
        multiply_on_lines<bfloat16>(device, {2080, 32, 2048}, 13);
        multiply_on_lines<bfloat16>(device, {2080, 32, 2050}, 13);  // rows of c that do not begin at cache lines
        multiply_on_lines<float>(device, {64, 32, 32800}, 13);
    });
}

/// a and b are ones, so that c is k plus the bias.
void add_bias(cpu_with_bfloat16_tiles& device, extent rows, extent depth, extent columns) {
    ht::tensor<bfloat16, 2> a(device.memory(), {rows, depth}), b(device.memory(), {depth, columns});
    ht::tensor<bfloat16, 2> c(device.memory(), {rows, columns});
    std::fill_n(a.data(), a.size(), bfloat16(1.0f));
    std::fill_n(b.data(), b.size(), bfloat16(1.0f));
    std::vector<float> bias(static_cast<std::size_t>(columns));
    for (extent j = 0; j < columns; ++j) bias[static_cast<std::size_t>(j)] = static_cast<float>(j % 100);
    ht::matmul<ht::amp_bf16>(device, a, b, c, ht::bias{ht::view<const float, 1>(bias.data(), {columns})});
    extent wrong = 0;
    for (extent i = 0; i < rows; ++i) {
        for (extent j = 0; j < columns; ++j)
            wrong += static_cast<float>(c(i, j)) == static_cast<float>(depth + j % 100) ? 0 : 1;
    }
    CHECK(wrong == 0);
}
TEST_CASE("matmul on AMX: non-temporal stores also after an epilogue") {
    support::for_each_of({ht::isa::amx}, [](ht::isa set) {
        cpu_with_bfloat16_tiles device{{.threads = 2, .instruction_set = set}};
        add_bias(device, 2080, 32, 2048);
        add_bias(device, 2080, 32, 2050);
    });
}

TEST_CASE("matmul on tiles: a sum over nothing is zero") {
    on_all_tiles(2, [](cpu_with_bfloat16_tiles& device) { multiply_on_lines<float>(device, {40, 0, 33}, 1); });
}

TEST_CASE("matmul on tiles: the same bits at any number of threads, and the squares of results") {
    for (const sizes& s : {sizes{100, 300, 130}, {264, 2100, 33}}) {
        const operand<bfloat16> a(s.rows, s.depth, matmul_test::layouts[0], matmul_test::normals{1});
        const operand<bfloat16> b(s.depth, s.columns, matmul_test::layouts[0], matmul_test::normals{2});
        support::for_each_of({ht::isa::avx512, ht::isa::amx}, [&](ht::isa set) {
            if (set != ht::isa::amx && s.depth > 1000) return;  // takes long in plain memory
            std::vector<float> first;
            double squares_of_first = 0;
            for (const int threads : {1, 2, 3}) {
                cpu_with_bfloat16_tiles device{{.threads = threads, .instruction_set = set}};
                std::vector<float> c(static_cast<std::size_t>(s.rows * s.columns));
                ht::square_sum squares;
                ht::detail::product<bfloat16>(device, a.view, b.view, ht::view<float, 2>(c.data(), {s.rows, s.columns}),
                                              ht::write_mode::overwrite, &squares);
                if (threads == 1) first = c, squares_of_first = squares.sum;
                CHECK(std::equal(c.begin(), c.end(), first.begin()));
                CHECK(squares.sum == squares_of_first);
                CHECK(squares.is_known(s.rows * s.columns));
                double want = 0;
                for (const float x : c) want += static_cast<double>(x) * static_cast<double>(x);
                constexpr auto roundings = static_cast<double>(ht::kernel::written_squares::depth + 1);
                CHECK(std::fabs(squares.sum - want) <= support::gamma(roundings) * want);
            }
        });
    }
}

}  // namespace

#endif
