// SPDX-License-Identifier: MIT
/// \file
/// Products of random numbers: within the bound computed from k and the unit roundoffs, with the same bits at any number of
/// threads.
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "kernel/matmul/checks.hpp"
#include "kernel/matmul/each_set.hpp"

namespace kernel_matmul_bounds_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using matmul_test::layouts;
using matmul_test::operand;

template <class P, class A, class B, class C>
void within_bounds(extent rows, extent depth, extent columns) {
    matmul_test::within_bounds<P, A, B, C>({rows, depth, columns}, layouts[2], layouts[3],
                                           [](const auto& test) { matmul_test::on_every_set(2, test); });
}

TEST_CASE("matmul: random products within k u of their magnitudes") {
    SUBCASE("fp32") { within_bounds<ht::full_fp32, float, float, float>(31, 700, 65); }
    SUBCASE("bf16") { within_bounds<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(31, 700, 65); }
    SUBCASE("bf16 into fp32") { within_bounds<ht::amp_bf16, bfloat16, bfloat16, float>(17, 300, 33); }
    SUBCASE("fp32 operands rounded to bf16") { within_bounds<ht::amp_bf16, float, float, float>(17, 300, 33); }
    SUBCASE("tf32") { within_bounds<ht::tf32, float, float, float>(31, 700, 65); }
    SUBCASE("fp32 by split products") { within_bounds<ht::split_fp32, float, float, float>(31, 700, 65); }
    SUBCASE("fp32 operands rounded to two bf16") {
        within_bounds<ht::with_compute<ht::full_fp32, ht::split<bfloat16, 2>>, float, float, float>(17, 300, 33);
    }
    SUBCASE("fp32 operands rounded to fp16") { within_bounds<ht::amp_fp16, float, float, float16>(17, 300, 33); }
}

template <class P, class T>
void same_bits() {
    struct sizes {
        extent rows, depth, columns;
    };
    for (const sizes& s : {sizes{1, 300, 700}, sizes{130, 300, 140}, sizes{257, 33, 129}, sizes{300, 64, 5},
                           sizes{60, 1700, 130}, sizes{250, 1100, 70}, sizes{1100, 70, 40}}) {
        CAPTURE(s.rows);
        const operand<T> a(s.rows, s.depth, layouts[0], matmul_test::normals(3)),
            b(s.depth, s.columns, layouts[1], matmul_test::normals(4));
        for (const ht::isa set : ht::every_isa) {
            if (!support::is_tested(set)) continue;
            const std::string instruction_set = ht::name(set);
            CAPTURE(instruction_set);
            std::vector<float> one(static_cast<std::size_t>(s.rows * s.columns)), other(one.size());
            const auto run = [&](int threads, std::vector<float>& c) {
                ht::cpu device{{.threads = threads, .instruction_set = set}};
                ht::matmul<P>(device, a.view, b.view, ht::view<float, 2>(c.data(), {s.rows, s.columns}));
            };
            run(1, one);
            for (const int threads : {2, 7}) {
                run(threads, other);
                CHECK_MESSAGE(std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0, threads,
                              " threads");
            }
        }
    }
}

TEST_CASE("matmul: the same bits at any number of threads") {
    SUBCASE("fp32") { same_bits<ht::full_fp32, float>(); }
    SUBCASE("bf16") { same_bits<ht::amp_bf16, bfloat16>(); }
    SUBCASE("fp16") { same_bits<ht::amp_fp16, float16>(); }
    SUBCASE("tf32") { same_bits<ht::tf32, float>(); }
    SUBCASE("split products") { same_bits<ht::split_fp32, float>(); }
}

/// The bits of a row do not depend on the number of rows: a token alone, and in a batch.
template <class P, class T>
void same_bits_alone() {
    matmul_test::on_every_set(2, [](auto& device) {
        constexpr extent all = 20;
        for (const extent columns : {1, 33, 130}) {
            for (const extent depth : {0, 1, 7, 300}) {
                for (const auto& of_b : {layouts[0], layouts[1], layouts[3]}) {
                    CAPTURE(columns);
                    CAPTURE(depth);
                    const operand<T> a(all, depth, layouts[2], matmul_test::normals(3)),
                        b(depth, columns, of_b, matmul_test::normals(4));
                    const operand<float> together(all, columns, layouts[0]);
                    ht::matmul<P>(device, a.view, b.view, together.view);
                    for (const extent rows : {1, 2, 3, 4, 5, 7, 8}) {
                        CAPTURE(rows);
                        const operand<float> alone(rows, columns, layouts[0]);
                        ht::matmul<P>(device, ht::view<const T, 2>(a.view.data(), {rows, depth}, a.view.strides()),
                                      b.view, alone.view);
                        std::int64_t different = 0;
                        for (extent i = 0; i < rows; ++i) {
                            for (extent j = 0; j < columns; ++j)
                                different +=
                                    std::memcmp(&alone.view(i, j), &together.view(i, j), sizeof(float)) == 0 ? 0 : 1;
                        }
                        CHECK(different == 0);
                    }
                }
            }
        }
    });
}

TEST_CASE("matmul: a row has the same bits alone and in a matrix") {
    SUBCASE("fp32") { same_bits_alone<ht::full_fp32, float>(); }
    SUBCASE("bf16") { same_bits_alone<ht::amp_bf16, bfloat16>(); }
    SUBCASE("fp32 operands rounded to bf16") { same_bits_alone<ht::amp_bf16, float>(); }
    SUBCASE("fp16") { same_bits_alone<ht::amp_fp16, float16>(); }
    SUBCASE("tf32") { same_bits_alone<ht::tf32, float>(); }
    SUBCASE("split products") { same_bits_alone<ht::split_fp32, float>(); }
}

TEST_CASE("matmul: infinities and NaNs propagate") {
    matmul_test::on_every_set(1, [](ht::cpu& device) { matmul_test::infinities_and_nans(device); });
}

}  // namespace kernel_matmul_bounds_tests
