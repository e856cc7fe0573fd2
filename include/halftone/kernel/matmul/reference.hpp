// SPDX-License-Identifier: MIT
/// \file
/// The definition of a matrix product: three loops, in double.
///
///     c[i][j] = f(sum over k of a[i][k] b[k][j], i, j)
#pragma once

#include <vector>

#include <halftone/tensor/coded_matrix.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// Calls finish(sum, i, j) once for every sum; finish computes the epilogue and stores the result.
template <class Compute, class A, class B, class Finish>
void matmul(const view<A, 2>& a,  // (rows, depth)
            const view<B, 2>& b,  // (depth, columns)
            const Finish& finish) {
    for (extent i = 0; i < a.extent_of(0); ++i) {
        for (extent j = 0; j < b.extent_of(1); ++j) {
            double sum = 0;
            for (extent k = 0; k < a.extent_of(1); ++k) {
                const Compute x(static_cast<float>(a(i, k))), y(static_cast<float>(b(k, j)));
                sum += static_cast<double>(static_cast<float>(x)) * static_cast<double>(static_cast<float>(y));
            }
            finish(sum, i, j);
        }
    }
}

/// With a coded b, or the transpose of one: its numbers are those that its format's `decode` gives.
template <class Compute, class A, class Format, class Finish>
void matmul(const view<A, 2>& a, const coded_matrix<Format>& b, const Finish& finish) {
    std::vector<float> numbers(b.elements());
    Format::decode(b.data(), b.elements(), 0, b.elements(), numbers.data());
    const view<const float, 2> stored(numbers.data(), b.stored_shape());
    matmul<Compute>(a, b.is_transposed() ? transpose(stored) : stored, finish);
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
