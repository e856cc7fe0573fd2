// SPDX-License-Identifier: MIT
/// \file
/// Products of small integers: every sum is exact in any order, so the comparison is equality. All layouts, odd sizes,
/// unaligned and strided views, all instruction sets.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "kernel/matmul/checks.hpp"
#include "kernel/matmul/each_set.hpp"

namespace kernel_matmul_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using matmul_test::sizes;

template <class P, class A, class B, class C>
void multiply_all() {
    // Around the tiles of every unit, the blocks of columns, and the panels' depth of 256.
    const sizes all[] = {{1, 1, 1},    {1, 7, 67},     {2, 3, 5},    {7, 13, 17},   {12, 32, 33},  {31, 64, 15},
                         {33, 65, 31}, {97, 100, 129}, {5, 257, 70}, {13, 600, 64}, {65, 256, 513}};
    for (const sizes& s : all) {
        const std::vector<double> want = matmul_test::exact_product(s);
        matmul_test::on_every_set(s.rows % 2 == 0 ? 1 : 2, [&](ht::cpu& device) {
            matmul_test::multiply_in_layouts<P, A, B, C>(device, s, want, 20000);
        });
    }
}

TEST_CASE("matmul: exact on small integers") {
    SUBCASE("fp32") { multiply_all<ht::full_fp32, float, float, float>(); }
    SUBCASE("bf16") { multiply_all<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(); }
    SUBCASE("fp16, into fp32") { multiply_all<ht::amp_fp16, float16, float16, float>(); }
    SUBCASE("bf16 and fp32 operands") { multiply_all<ht::amp_bf16, bfloat16, float, float>(); }
}

TEST_CASE("matmul: a sum over nothing is zero, a product without elements touches nothing") {
    matmul_test::on_every_set(2, [](ht::cpu& device) { matmul_test::nothing_to_sum(device); });
}

/// Products of small integers, which are exact, against sums over every `step`-th row and column.
/// `turned`: a is contiguous along its columns, so that it has to be packed.
template <class P, class T>
void exact_product(extent m, extent n, extent k, extent step, int threads = 2, bool turned = false) {
    ht::cpu device{{.threads = threads}};
    const ht::shape<2> strides = turned ? ht::shape<2>{1, m} : ht::shape<2>{k, 1};
    std::vector<T> a(static_cast<std::size_t>(m * k)), b(static_cast<std::size_t>(k * n));
    std::vector<float> c(static_cast<std::size_t>(m * n));
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = T(static_cast<float>((i * 5 + i / 17) % 5) - 2);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = T(static_cast<float>((i * 7 + i / 11) % 9) - 4);
    const ht::view<const T, 2> rows(a.data(), {m, k}, strides);
    ht::matmul<P>(device, rows, ht::view<const T, 2>(b.data(), {k, n}), ht::view<float, 2>(c.data(), {m, n}));
    for (extent i = 0; i < m; i += step) {
        for (extent j = 0; j < n; j += step) {
            double sum = 0;
            for (extent p = 0; p < k; ++p)
                sum += static_cast<double>(static_cast<float>(rows(i, p))) *
                       static_cast<double>(static_cast<float>(b[p * n + j]));
            if (static_cast<double>(c[i * n + j]) != sum)
                FAIL("element ", i, ", ", j, ": got ", c[i * n + j], ", expected ", sum);
        }
    }
}

TEST_CASE("matmul: b and k that do not fit into one packed slice") {
    exact_product<ht::full_fp32, float>(1, 1100, 8192, 3);      // b is larger than what is packed at a time
    exact_product<ht::full_fp32, float>(20, 800, 8192, 13, 7);  // the same, shared by the threads
    exact_product<ht::full_fp32, float>(800, 4000, 1100, 83);   // more sums than are buffered from chunk to chunk of k
    exact_product<ht::full_fp32, float>(37, 70, 33000, 7);      // sums are buffered until the next chunk of k
    exact_product<ht::amp_bf16, ht::bfloat16>(50, 70, 33000, 9);
}

TEST_CASE("matmul: every small number of rows, with b read in place") {
    for (extent m = 1; m <= 50; ++m) {
        exact_product<ht::full_fp32, float>(m, 211, 37, 1);  // whole tiles, vectors and a part of one
        exact_product<ht::full_fp32, ht::bfloat16>(m, 70, 530, 1, 2, m % 2 == 0);
        exact_product<ht::amp_bf16, ht::bfloat16>(m, 211, 37, 1);  // the last k has no partner in its pair
        exact_product<ht::amp_bf16, ht::bfloat16>(m, 70, 530, 1, 2, m % 2 == 0);
    }
    exact_product<ht::amp_fp16, ht::float16>(29, 100, 700, 1);
}

/// The same bits at every position of b's first element in its cache line; the row stride of b is a whole number of lines.
template <class P, class T>
void same_bits_off_a_line(extent m, extent n, extent k) {
    ht::cpu device{{.threads = 2}};
    constexpr extent line = 64 / static_cast<extent>(sizeof(T));
    std::vector<T> a(static_cast<std::size_t>(m * k)), held(static_cast<std::size_t>(k * n + 2 * line));
    std::vector<float> first, c(static_cast<std::size_t>(m * n));
    const auto number = [](extent i) { return T(static_cast<float>((i * 37 + i / 13) % 101) / 64 - 0.7f); };
    for (extent i = 0; i < m * k; ++i) a[static_cast<std::size_t>(i)] = number(i);
    for (extent off = 0; off < line; ++off) {
        const auto beyond = static_cast<extent>(reinterpret_cast<std::uintptr_t>(held.data()) % 64 / sizeof(T));
        T* const b = held.data() + (line - beyond) % line + off;
        for (extent i = 0; i < k * n; ++i) b[i] = number(i + 5);
        std::fill(c.begin(), c.end(), -1e9f);
        ht::matmul<P>(device, ht::view<const T, 2>(a.data(), {m, k}), ht::view<const T, 2>(b, {k, n}),
                      ht::view<float, 2>(c.data(), {m, n}));
        if (off == 0) first = c;
        CHECK(c == first);
    }
}

TEST_CASE("matmul: few rows, with b not aligned to a cache line") {
    for (const extent m : {1, 2, 3, 8, 29}) {
        same_bits_off_a_line<ht::full_fp32, float>(m, 256, 70);   // several tasks
        same_bits_off_a_line<ht::full_fp32, float>(m, 576, 300);  // several tasks and pieces of k
        same_bits_off_a_line<ht::full_fp32, float>(m, 64, 600);   // one task
        same_bits_off_a_line<ht::full_fp32, float>(m, 130, 70);   // rows whose alignments differ
        same_bits_off_a_line<ht::amp_bf16, ht::bfloat16>(m, 256, 71);
        same_bits_off_a_line<ht::amp_bf16, ht::bfloat16>(m, 576, 300);
        same_bits_off_a_line<ht::full_fp32, ht::bfloat16>(m, 256, 70);
    }
}

TEST_CASE("matmul: few rows, whose sums stay in cache while k streams through") {
    const sizes in_all_layouts{34, 130, 6200};
    ht::cpu device{{.threads = 1}};
    matmul_test::multiply_in_layouts<ht::amp_bf16, bfloat16, bfloat16, float>(
        device, in_all_layouts, matmul_test::exact_product(in_all_layouts), 5000);
    exact_product<ht::full_fp32, float>(20, 300, 8192, 13);
    exact_product<ht::full_fp32, float>(20, 260, 17000, 13);
    exact_product<ht::amp_bf16, ht::bfloat16>(40, 260, 6000, 13);
    exact_product<ht::amp_bf16, ht::bfloat16>(40, 260, 6144, 13);  // read in place, its rows would evict each other
}

TEST_CASE("matmul: up to a thousand rows that stream past a few panels, one piece of k at a time") {
    exact_product<ht::full_fp32, float>(500, 300, 600, 13);  // 600 = 3 pieces of 224 and less
    exact_product<ht::full_fp32, float>(700, 260, 300, 13, 2, true);
    exact_product<ht::amp_bf16, ht::bfloat16>(500, 260, 400, 13);
    exact_product<ht::amp_bf16, ht::bfloat16>(1000, 300, 1100, 37, 2, true);
}

TEST_CASE("matmul: rows a multiple of 4 KiB apart, which are read in place") {
    for (const int threads : {1, 2}) {
        exact_product<ht::full_fp32, float>(101, 70, 1024, 3, threads);
        exact_product<ht::full_fp32, float>(300, 16, 3072, 7, threads);
        exact_product<ht::amp_bf16, ht::bfloat16>(101, 70, 2048, 3, threads);
        exact_product<ht::amp_bf16, ht::bfloat16>(300, 300, 2048, 13, threads);
    }
}

TEST_CASE("matmul: small results of large k, in chunks of k") {
    for (const bool turned : {false, true}) {
        exact_product<ht::full_fp32, float>(800, 200, 2500, 13, 2, turned);
        exact_product<ht::amp_bf16, ht::bfloat16>(1100, 200, 5001, 37, 2, turned);
    }
}

TEST_CASE("matmul: many rows that are packed once, together with all of b") {
    exact_product<ht::full_fp32, float>(1100, 270, 150, 13, 5, true);
    exact_product<ht::amp_bf16, ht::bfloat16>(1100, 390, 530, 37, 5, true);
    exact_product<ht::amp_bf16, ht::bfloat16>(401, 500, 17000, 83, 2, true);  // and again for the next chunk of k
}

TEST_CASE("matmul: few columns, with rows of a read in place") {
    exact_product<ht::full_fp32, float>(150, 30, 1024, 7);  // 4 KiB apart
    exact_product<ht::full_fp32, float>(110, 9, 1030, 7);
    exact_product<ht::amp_bf16, ht::bfloat16>(150, 48, 2048, 7);
    exact_product<ht::amp_bf16, ht::bfloat16>(300, 16, 700, 7);
}

TEST_CASE("matmul: few results of large k, in equal parts for all threads") {
    for (const int threads : {1, 2, 3, 7}) {
        exact_product<ht::full_fp32, float>(256, 16, 3072, 7, threads);
        exact_product<ht::full_fp32, float>(60, 100, 3000, 7, threads);
        exact_product<ht::full_fp32, float>(60, 30, 3000, 7, threads, true);  // rows are distributed, and packed block by block
        exact_product<ht::amp_bf16, ht::bfloat16>(61, 30, 3000, 7, threads, true);
        exact_product<ht::amp_bf16, ht::bfloat16>(500, 70, 1500, 13, threads);
        exact_product<ht::amp_bf16, ht::bfloat16>(130, 130, 4100, 13, threads, true);
    }
}

TEST_CASE("matmul: a small b, which each thread packs completely") {
    for (const int threads : {1, 2, 3, 7}) {
        exact_product<ht::full_fp32, float>(460, 40, 1000, 7, threads);
        exact_product<ht::full_fp32, float>(1024, 70, 40, 13, threads, true);
        exact_product<ht::amp_bf16, ht::bfloat16>(470, 16, 3072, 7, threads);
        exact_product<ht::amp_bf16, ht::bfloat16>(777, 20, 1111, 13, threads, true);
        exact_product<ht::amp_fp16, ht::float16>(450, 33, 600, 7, threads);
    }
}

TEST_CASE("batched_matmul: each matrix of the batch") {
    matmul_test::on_every_set(1, [](ht::cpu& device) { matmul_test::each_matrix_of_a_batch(device); });
}

TEST_CASE("matmul: tensors and 16-bit results as well as views") {
    ht::cpu device{{.threads = 1}};
    ht::tensor<float, 2> a(device.memory(), {2, 3}), b(device.memory(), {3, 2});
    ht::tensor<float16, 2> c(device.memory(), {2, 2});
    for (int i = 0; i < 6; ++i) a.data()[i] = b.data()[i] = static_cast<float>(i + 1);
    ht::matmul<ht::amp_fp16>(device, a, b.const_view(), c);
    const float want[] = {22, 28, 49, 64};
    for (int i = 0; i < 4; ++i) CHECK(static_cast<float>(c.data()[i]) == want[i]);
}

TEST_CASE("matmul: operands that do not fit are refused with their shapes") {
    ht::cpu device{{.threads = 1}};
    std::vector<float> memory(64);
    const auto matrix = [&](extent rows, extent columns) { return ht::view<float, 2>(memory.data(), {rows, columns}); };
    CHECK_THROWS_WITH_AS(ht::matmul<ht::full_fp32>(device, matrix(2, 3), matrix(4, 5), matrix(2, 5)),
                         "matmul: the inner extents differ: a is (2, 3), b is (4, 5); b needs 3 rows", ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::matmul<ht::full_fp32>(device, matrix(2, 3), matrix(3, 5), matrix(5, 2)),
                         "matmul: c is (5, 2); (2, 3) times (3, 5) gives (2, 5)", ht::shape_error);
    const ht::view<float, 2> holes(memory.data(), {2, 3}, {12, 2});
    CHECK_THROWS_WITH_AS(ht::matmul<ht::full_fp32>(device, holes, matrix(3, 5), matrix(2, 5)),
                         "matmul: neither axis of a (2, 3) is contiguous; its strides are (12, 2)", ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::matmul<ht::full_fp32>(device, matrix(5, 2), holes, matrix(5, 3)),
                         "matmul: neither axis of b (2, 3) is contiguous; its strides are (12, 2)", ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::matmul<ht::full_fp32>(device, matrix(3, 5), matrix(5, 2), ht::transpose(matrix(2, 3))),
                         "matmul: c (3, 2) has gaps within its rows; its strides are (1, 3)", ht::shape_error);

    const auto three = [&](extent n, extent rows, extent columns) {
        return ht::view<float, 3>(memory.data(), {n, rows, columns});
    };
    CHECK_THROWS_WITH_AS(ht::batched_matmul<ht::full_fp32>(device, three(2, 2, 3), three(3, 3, 1), three(2, 2, 1)),
                         "batched_matmul: a holds 2 matrices, b 3, c 2", ht::shape_error);
}

}  // namespace kernel_matmul_tests
