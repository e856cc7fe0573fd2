// SPDX-License-Identifier: MIT
/// \file
/// The definition of softmax, of its logarithm, and of their gradients, in double.
///
///     y[j] = exp(s x[j]) / (sum over k of exp(s x[k]))
///
///     reference::softmax(x, 1.0, y);
#pragma once

#include <cmath>
#include <limits>

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// The sum over j of exp(s (x[i][j] - m)), where the largest s x[i][j] is s m, so that no exponential overflows. m and the
/// sum stay apart: log(sum) is lost in a large m, and s times a difference is more exact than a difference of products.
struct exponential_sum {
    double subtracted, sum;
};
/// That sum for row i of x.
template <class X>
exponential_sum sum_of_exponentials(const view<X, 2>& x, extent i, double scale) {
    const double sign = scale < 0 ? -1 : 1;
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (extent j = 0; j < x.extent_of(1); ++j) largest = std::fmax(largest, sign * static_cast<double>(x(i, j)));
    for (extent j = 0; j < x.extent_of(1); ++j)
        sum += std::exp(scale * (static_cast<double>(x(i, j)) - sign * largest));
    return {sign * largest, sum};
}

/// y = s x - log(sum over the row of exp(s x)).
template <class X, class Y>
void log_softmax(const view<X, 2>& x, double scale, const view<Y, 2>& y) {  // both (rows, width)
    for (extent i = 0; i < x.extent_of(0); ++i) {
        const auto [subtracted, sum] = sum_of_exponentials(x, i, scale);
        for (extent j = 0; j < x.extent_of(1); ++j)
            y(i, j) = static_cast<Y>(scale * (static_cast<double>(x(i, j)) - subtracted) - std::log(sum));
    }
}

/// y = exp(s x) / (sum over the row of exp(s x)).
template <class X, class Y>
void softmax(const view<X, 2>& x, double scale, const view<Y, 2>& y) {
    for (extent i = 0; i < x.extent_of(0); ++i) {
        const auto [subtracted, sum] = sum_of_exponentials(x, i, scale);
        for (extent j = 0; j < x.extent_of(1); ++j)
            y(i, j) = static_cast<Y>(std::exp(scale * (static_cast<double>(x(i, j)) - subtracted)) / sum);
    }
}

/// dx = s y (dy - sum of dy y)
template <class Y, class D, class X>
void softmax_backward(const view<Y, 2>& y, const view<D, 2>& dy, double scale, const view<X, 2>& dx) {
    for (extent i = 0; i < y.extent_of(0); ++i) {
        double dot = 0;
        for (extent j = 0; j < y.extent_of(1); ++j) dot += static_cast<double>(dy(i, j)) * static_cast<double>(y(i, j));
        for (extent j = 0; j < y.extent_of(1); ++j)
            dx(i, j) = static_cast<X>(scale * static_cast<double>(y(i, j)) * (static_cast<double>(dy(i, j)) - dot));
    }
}

/// dx = s (dy - exp(y) (sum of dy))
template <class Y, class D, class X>
void log_softmax_backward(const view<Y, 2>& y, const view<D, 2>& dy, double scale, const view<X, 2>& dx) {
    for (extent i = 0; i < y.extent_of(0); ++i) {
        double sum = 0;
        for (extent j = 0; j < y.extent_of(1); ++j) sum += static_cast<double>(dy(i, j));
        for (extent j = 0; j < y.extent_of(1); ++j) {
            dx(i, j) =
                static_cast<X>(scale * (static_cast<double>(dy(i, j)) - std::exp(static_cast<double>(y(i, j))) * sum));
        }
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
