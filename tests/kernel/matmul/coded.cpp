// SPDX-License-Identifier: MIT
/// \file
/// Products with coded matrices on the CPU: every instruction set, both orientations, and every strategy.
#include <doctest/doctest.h>

#include <halftone/kernel/matmul/reference.hpp>
#include <halftone/number/nf4.hpp>

#include "kernel/matmul/coded_checks.hpp"
#include "kernel/matmul/each_set.hpp"

namespace kernel_matmul_coded_tests {

namespace ht = halftone;
using namespace matmul_test;
using ht::bfloat16;
using ht::extent;

template <class P, class Compute, class Format, class A, class C>
void expect_products() {
    // One panel and less, parts of panels and of the 32 columns that are decoded at a time, several pieces of k, a row
    // whose blocks are an odd number; and rows of a for each strategy: small_m, both stationary ones, shared_b.
    const std::pair<extent, extent> sizes[] = {{1, 64}, {33, 64}, {7, 320}, {130, 192}, {31, 1088}, {600, 128}};
    for (const auto& [rows, width] : sizes) {
        const coded_numbers<Format> b(rows, width);
        on_every_set(rows % 2 == 0 ? 1 : 2, [&](ht::cpu& device) {
            for (const extent m : {1, 2, 3, 4, 7, 13, 40, 100}) {
                expect_coded_product<P, Compute, Format, A, C>(device, m, b, true);
                expect_coded_product<P, Compute, Format, A, C>(device, m, b, false);
            }
        });
    }
}

TEST_CASE("matmul: coded matrices have the bits of their numbers") {
    SUBCASE("nf4, bf16") { expect_products<ht::amp_bf16, bfloat16, ht::nf4, bfloat16, bfloat16>(); }
    SUBCASE("nf4, fp32") { expect_products<ht::full_fp32, float, ht::nf4, float, float>(); }
    SUBCASE("nf4, fp16") { expect_products<ht::amp_fp16, ht::float16, ht::nf4, ht::float16, float>(); }
    SUBCASE("q8_0, bf16, floats") { expect_products<ht::amp_bf16, bfloat16, ht::q8_0, float, float>(); }
    SUBCASE("q8_0, fp32") { expect_products<ht::full_fp32, float, ht::q8_0, float, float>(); }
}

TEST_CASE("matmul: coded matrices in strategies of many rows and few columns") {
    on_every_set(2, [](ht::cpu& device) {
        for (const extent m : {300, 1100}) {
            expect_coded_product<ht::amp_bf16, bfloat16, ht::nf4, bfloat16, float>(device, m, {96, 704}, true);
            expect_coded_product<ht::amp_bf16, bfloat16, ht::nf4, bfloat16, float>(device, m, {300, 128}, false);
            expect_coded_product<ht::full_fp32, float, ht::q8_0, float, float>(device, m, {40, 2080}, true);
            expect_coded_product<ht::full_fp32, float, ht::q8_0, float, float>(device, m, {2080, 32}, false);
        }
    });
}

TEST_CASE("matmul: a coded matrix in a product in double is decoded before") {
    ht::cpu device{{.threads = 2}};
    const coded_numbers<ht::nf4> b(33, 128);
    expect_coded_product<ht::full_fp32, float, ht::nf4, double, double>(device, 5, b, true);
    expect_coded_product<ht::full_fp32, float, ht::nf4, double, double>(device, 5, b, false);
}

TEST_CASE("matmul: scales so small that products are subnormal, and blocks of zeros") {
    for (const float least : {1e-38f, 3e-41f, 0.0f}) {
        coded_numbers<ht::nf4> four(32, 128);
        coded_numbers<ht::q8_0> eight(32, 128);
        for (float& x : four.values) x *= least;
        ht::nf4::encode(four.values.data(), four.values.size(), four.codes.data());
        ht::nf4::decode(four.codes.data(), four.values.size(), 0, four.values.size(), four.values.data());
        for (float& x : eight.values) x *= least * 1e4f;
        ht::q8_0::encode(eight.values.data(), eight.values.size(), eight.codes.data());
        ht::q8_0::decode(eight.codes.data(), eight.values.size(), 0, eight.values.size(), eight.values.data());
        on_every_set(1, [&](ht::cpu& device) {
            for (const extent m : {1, 8}) {
                expect_coded_product<ht::amp_bf16, bfloat16, ht::nf4, bfloat16, float>(device, m, four, true, 0);
                expect_coded_product<ht::amp_bf16, bfloat16, ht::q8_0, bfloat16, float>(device, m, eight, true, 0);
            }
        });
    }
}

TEST_CASE("matmul: coded integers, whose sums are exact, against the definition") {
    const extent m = 5, n = 33, k = 96;
    std::vector<float> values, a;
    for (extent i = 0; i < n * k; ++i) values.push_back(i % 32 == 0 ? 127.0f : static_cast<float>(i * 37 % 255) - 127);
    for (extent i = 0; i < m * k; ++i) a.push_back(static_cast<float>(i * 5 % 7) - 3);
    std::vector<std::byte> codes(ht::q8_0::bytes(values.size()));
    ht::q8_0::encode(values.data(), values.size(), codes.data());
    const ht::coded_matrix<ht::q8_0> b(codes.data(), n, k);
    std::vector<float> c(static_cast<std::size_t>(m * n));
    const ht::view<const float, 2> rows(a.data(), {m, k});
    on_every_set(1, [&](ht::cpu& device) {
        ht::matmul<ht::full_fp32>(device, rows, ht::transpose(b), ht::view<float, 2>(c.data(), {m, n}));
        ht::reference::matmul<float>(rows, ht::transpose(b), [&](double sum, extent i, extent j) {
            CHECK(static_cast<double>(c[static_cast<std::size_t>(i * n + j)]) == sum);
        });
    });
}

TEST_CASE("coded_matrix: shapes that do not fit are refused") {
    ht::cpu device;
    const coded_numbers<ht::nf4> b(8, 128);
    std::vector<float> a(128 * 4), c(4 * 128);
    CHECK_THROWS_AS((ht::coded_matrix<ht::nf4>(b.codes.data(), 8, 96)), ht::shape_error);
    const ht::view<const float, 2> rows(a.data(), {4, 128});
    const auto multiply = [&](const auto& second, extent n) {
        ht::matmul<ht::full_fp32>(device, rows, second, ht::view<float, 2>(c.data(), {4, n}));
    };
    CHECK_THROWS_AS(multiply(b.matrix(), 128), ht::shape_error);
    CHECK_THROWS_AS(multiply(ht::transpose(b.matrix()), 9), ht::shape_error);
    multiply(ht::transpose(b.matrix()), 8);
}

}  // namespace kernel_matmul_coded_tests
