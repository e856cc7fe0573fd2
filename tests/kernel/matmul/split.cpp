// SPDX-License-Identifier: MIT
/// \file
/// matmul by split products, which a processor with AMX uses: on devices whose tiles are emulated in memory, or
/// are multiplied by VDPBF16PS. Everywhere else the policy split_fp32 gives the bits of full_fp32.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "kernel/matmul/checks.hpp"
#include "kernel/matmul/each_set.hpp"
#include "kernel/product/pair_tiles.hpp"
#include "kernel/product/software_tiles.hpp"

namespace ht = halftone;

#if defined(__x86_64__)
namespace {

/// A CPU whose matmul uses the unit for tiles: with AMX, with VDPBF16PS, or emulated in memory.
struct cpu_with_tiles : ht::cpu {
    using ht::cpu::cpu;
};

}  // namespace

template <>
struct ht::kernel::matmul<cpu_with_tiles> {
    template <class Compute, class A, class B, class Operands, class Results>
    static void run(ht::cpu& device, const view<A, 2>& a, const view<B, 2>& b,
                    const ht::detail::matmul_epilogue<Operands, Results>& epilogue) {
        using namespace ht::detail;
        constexpr int pieces = split_pieces<Compute>;
        static_assert(pieces > 1);
        using a_type = std::remove_const_t<A>;
        using b_type = std::remove_const_t<B>;
        const isa set = device.instruction_set();
        const product_unit unit = set == isa::amx           ? matmul_unit_for<Compute>(device)
                                  : set == isa::avx512_bf16 ? support::pair_tiles::split_unit<pieces>()
                                                            : support::software_tiles::split_unit<pieces>();
        const a_packing<a_type> of_a{.pack = &avx512::pack_a_split<Compute, pieces, a_type>};
        const b_packing<b_type> of_b{.pack = &avx512::pack_b_split<Compute, pieces, b_type>};
        matmul<cpu>::run_by(unit, of_a, of_b, device, a, b, epilogue);
    }
};
#endif

namespace {

using ht::bfloat16;
using ht::extent;
using ht::float16;
using matmul_test::layouts;
using matmul_test::operand;
using matmul_test::sizes;
using two_pieces = ht::with_compute<ht::full_fp32, ht::split<bfloat16, 2>>;

#if defined(__x86_64__)

/// Runs test(device) with tiles emulated in memory, with VDPBF16PS, and with AMX.
template <class Test>
void on_all_tiles(int threads, const Test& test) {
    support::for_each_of({ht::isa::avx512, ht::isa::avx512_bf16, ht::isa::amx}, [&](ht::isa set) {
        cpu_with_tiles device{{.threads = threads, .instruction_set = set}};
        test(device);
    });
}

template <class P, class A, class B, class C>
void multiply_all() {
    const sizes all[] = {{1, 1, 1},    {1, 7, 67},   {2, 3, 5},      {7, 13, 17},  {12, 32, 33},
                         {31, 64, 15}, {33, 65, 31}, {97, 100, 129}, {5, 257, 70}, {13, 600, 64}};
    for (const sizes& s : all) {
        const std::vector<double> want = matmul_test::exact_product(s);
        on_all_tiles(2, [&](auto& device) { matmul_test::multiply_in_layouts<P, A, B, C>(device, s, want, 10000); });
    }
}

TEST_CASE("matmul by split products: exact on small integers, in all layouts") {
    SUBCASE("three pieces") { multiply_all<ht::split_fp32, float, float, float>(); }
    SUBCASE("three pieces of several types") { multiply_all<ht::split_fp32, bfloat16, float, bfloat16>(); }
    SUBCASE("two pieces") { multiply_all<two_pieces, float, float, float>(); }
    SUBCASE("float16 as two pieces") { multiply_all<ht::amp_fp16, float16, float16, float>(); }
    SUBCASE("float as float16 as two pieces") { multiply_all<ht::amp_fp16, float, float16, float16>(); }
}

template <class P, class A, class B, class C>
void within_bounds(const sizes& s) {
    for (const auto& [of_a, of_b] : {std::pair{0, 0}, std::pair{2, 3}, std::pair{1, 2}, std::pair{3, 1}}) {
        matmul_test::within_bounds<P, A, B, C>(s, layouts[of_a], layouts[of_b],
                                               [](const auto& test) { on_all_tiles(2, test); });
    }
}

TEST_CASE("matmul by split products: random products within the bound, in all layouts") {
    SUBCASE("three pieces") { within_bounds<ht::split_fp32, float, float, float>({31, 700, 65}); }
    SUBCASE("three pieces, short sums") { within_bounds<ht::split_fp32, float, float, float>({70, 2, 40}); }
    SUBCASE("two pieces") { within_bounds<two_pieces, float, float, float>({17, 300, 33}); }
    SUBCASE("float16") { within_bounds<ht::amp_fp16, float16, float16, float>({17, 300, 33}); }
    SUBCASE("float16, short sums") { within_bounds<ht::amp_fp16, float16, float16, float>({70, 2, 40}); }
    SUBCASE("float as float16") { within_bounds<ht::amp_fp16, float, float, float16>({17, 300, 33}); }
}

template <class P, class T>
void same_bits() {
    for (const sizes& s : {sizes{1, 300, 700}, sizes{130, 300, 260}, sizes{257, 33, 129}, sizes{300, 64, 5}}) {
        CAPTURE(s.rows);
        const operand<T> a(s.rows, s.depth, layouts[0], matmul_test::normals(3)),
            b(s.depth, s.columns, layouts[1], matmul_test::normals(4));
        a.view(s.rows / 2, s.depth / 2) = T(std::numeric_limits<float>::infinity());
        std::vector<std::vector<float>> results;
        for (const int threads : {1, 2, 7}) {
            on_all_tiles(threads, [&](auto& device) {
                results.emplace_back(static_cast<std::size_t>(s.rows * s.columns));
                ht::matmul<P>(device, a.view, b.view, ht::view<float, 2>(results.back().data(), {s.rows, s.columns}));
            });
        }
        const std::size_t kinds = results.size() / 3;
        for (std::size_t i = kinds; i < results.size(); ++i) {
            CHECK(std::memcmp(results[i].data(), results[i % kinds].data(), results[i].size() * sizeof(float)) == 0);
        }
    }
}
TEST_CASE("matmul by split products: the same bits at any number of threads") {
    SUBCASE("three pieces") { same_bits<ht::split_fp32, float>(); }
    SUBCASE("float16") { same_bits<ht::amp_fp16, float16>(); }
}

/// Infinities and NaNs at any position: the result is finite exactly if that of fp32 is, and otherwise equals fp32's.
template <class P, class T>
void infinities_and_nans() {
    const sizes s{70, 300, 45};
    for (const float value :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
        CAPTURE(value);
        const operand<T> a(s.rows, s.depth, layouts[0], matmul_test::normals(5)),
            b(s.depth, s.columns, layouts[1], matmul_test::normals(6));
        const auto spoil = [&](const operand<T>& o, extent i, extent j) { o.view(i, j) = T(value); };
        spoil(a, 0, 0), spoil(a, 33, 299), spoil(a, 69, 140), spoil(a, 69, 141), spoil(b, 7, 44), spoil(b, 140, 31);
        b.view(0, 3) = T(0.0f), b.view(299, 9) = T(-0.0f);
        const operand<float> want(s.rows, s.columns, layouts[0]);
        ht::cpu plain{{.threads = 1}};
        ht::matmul<ht::full_fp32>(plain, a.view, b.view, want.view);
        on_all_tiles(2, [&](auto& device) {
            const operand<float> c(s.rows, s.columns, layouts[0]);
            ht::matmul<P>(device, a.view, b.view, c.view);
            std::int64_t wrong = 0, special = 0;
            for (extent i = 0; i < s.rows; ++i) {
                for (extent j = 0; j < s.columns; ++j) {
                    const float x = want.view(i, j), y = c.view(i, j);
                    special += std::isfinite(x) ? 0 : 1;
                    wrong += (std::isfinite(x) ? std::isfinite(y) : std::isnan(x) ? std::isnan(y) : x == y) ? 0 : 1;
                }
            }
            CHECK(special >= 3 * s.columns + 2 * (s.rows - 3));
            CHECK(wrong == 0);
        });
    }
}
TEST_CASE("matmul by split products: infinities and NaNs are those of fp32") {
    SUBCASE("three pieces") { infinities_and_nans<ht::split_fp32, float>(); }
    SUBCASE("two pieces") { infinities_and_nans<two_pieces, float>(); }
    SUBCASE("float16") { infinities_and_nans<ht::amp_fp16, float16>(); }
}

#endif

TEST_CASE("matmul under split_fp32: the bits of full_fp32 on processors without tiles") {
    const sizes s{33, 300, 70};
    const operand<float> a(s.rows, s.depth, layouts[2], matmul_test::normals(3)),
        b(s.depth, s.columns, layouts[3], matmul_test::normals(4));
    matmul_test::on_every_set(2, [&](ht::cpu& device) {
        if (device.instruction_set() == ht::isa::amx) return;
        const operand<float> c(s.rows, s.columns, layouts[0]), d(s.rows, s.columns, layouts[0]);
        ht::matmul<ht::full_fp32>(device, a.view, b.view, c.view);
        ht::matmul<ht::split_fp32>(device, a.view, b.view, d.view);
        CHECK(std::memcmp(c.memory.data(), d.memory.data(),
                          static_cast<std::size_t>(s.rows * s.columns) * sizeof(float)) == 0);
    });
}

}  // namespace
