// SPDX-License-Identifier: MIT
/// \file
/// Products with coded matrices on any device, beside those with the numbers that the format's own `decode` gives: the same
/// bits, since each number is decoded in float and rounded to the policy's compute type once.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/matmul/matmul.hpp>

#include "support/random.hpp"

namespace matmul_test {

namespace ht = halftone;

/// A matrix of a format, and its numbers.
template <class Format>
struct coded_numbers {
    ht::extent rows, width;
    std::vector<std::byte> codes;
    std::vector<float> values;

    coded_numbers(ht::extent of_rows, ht::extent of_width) : rows(of_rows), width(of_width) {
        const auto count = static_cast<std::size_t>(rows * width);
        for (std::size_t i = 0; i < count; ++i)
            values.push_back(static_cast<float>(static_cast<int>(i * 7919 % 1013) - 506) /
                             static_cast<float>(300 << (i / 512 % 5)));
        codes.resize(Format::bytes(count));
        Format::encode(values.data(), count, codes.data());
        Format::decode(codes.data(), count, 0, count, values.data());
    }
    ht::coded_matrix<Format> matrix() const { return {codes.data(), rows, width}; }
};

/// c = `before` + ab with a coded b, or its transpose, beside the numbers rounded to `Compute`, with `m` rows of a.
template <class P, class Compute, class Format, class A, class C, class Device>
void expect_coded_product(Device& device, ht::extent m, const coded_numbers<Format>& b, bool is_transposed,
                          float before = 1) {
    CAPTURE(m);
    CAPTURE(b.rows);
    CAPTURE(b.width);
    CAPTURE(is_transposed);
    const ht::extent k = is_transposed ? b.width : b.rows, n = is_transposed ? b.rows : b.width;
    std::vector<A> a(static_cast<std::size_t>(m * k));
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = A(static_cast<float>(static_cast<int>(i * 31 % 17) - 8) / 4.0f);
    std::vector<Compute> rounded;
    for (const float x : b.values) rounded.push_back(Compute(x));
    std::vector<C> got(static_cast<std::size_t>(m * n), C(before)), want = got;
    const ht::view<const Compute, 2> numbers(rounded.data(), {b.rows, b.width});
    const ht::view<const A, 2> rows(a.data(), {m, k});
    const auto multiply = [&](const auto& second, std::vector<C>& c) {
        ht::matmul<P>(device, rows, second, ht::view<C, 2>(c.data(), {m, n}), ht::add_product{});
    };
    multiply(is_transposed ? ht::transpose(b.matrix()) : b.matrix(), got);
    multiply(is_transposed ? ht::transpose(numbers) : numbers, want);
    CHECK(std::memcmp(got.data(), want.data(), got.size() * sizeof(C)) == 0);
}

}  // namespace matmul_test
