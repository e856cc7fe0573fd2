// SPDX-License-Identifier: MIT
/// \file
/// The definition of softmax, of its logarithm, and of their gradients, in double.
///
///     y[j] = exp(s x[j]) / (sum over k of exp(s x[k]))
///
///     reference::softmax(x, 1.0, y);
///
/// The functions of one row are also used by the kernels in double (fp64.hpp).
#pragma once

#include <cmath>

#include <halftone/kernel/common/definition/rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// The sum over j of exp(s (x[j] - m)), where the largest s x[j] is s m, so that no exponential overflows. m and the
/// sum are kept separate, because log(sum) would be lost in a large m, and s times a difference is more exact than a
/// difference of products. The sum is NaN if the row holds a NaN.
struct exponential_sum {
    double subtracted, sum;
};
/// The sum of exponentials of a row x of `width` numbers.
HALFTONE_KERNEL template <class X>
HALFTONE_HD exponential_sum sum_of_exponentials(extent width, const X& x, double scale) {
    const double sign = scale < 0 ? -1 : 1;
    double largest = -HUGE_VAL, sum = 0;
    for (extent j = 0; j < width; ++j) {
        const double value = sign * x(j);
        if (largest < value) largest = value;
    }
    for (extent j = 0; j < width; ++j) sum += std::exp(scale * (x(j) - sign * largest));
    return {sign * largest, sum};
}

/// y = exp(s x) / (sum over the row of exp(s x)).
HALFTONE_KERNEL template <class X, class Y>
HALFTONE_HD void softmax_row(extent width, const X& x, double scale, const Y& y) {
    const exponential_sum all = sum_of_exponentials(width, x, scale);
    for (extent j = 0; j < width; ++j) y(j, std::exp(scale * (x(j) - all.subtracted)) / all.sum);
}
/// y = s x - log(sum over the row of exp(s x)).
HALFTONE_KERNEL template <class X, class Y>
HALFTONE_HD void log_softmax_row(extent width, const X& x, double scale, const Y& y) {
    const exponential_sum all = sum_of_exponentials(width, x, scale);
    const double logarithm = std::log(all.sum);
    for (extent j = 0; j < width; ++j) y(j, scale * (x(j) - all.subtracted) - logarithm);
}

/// dx = s y (dy - sum of dy y)
HALFTONE_KERNEL template <class Y, class D, class X>
HALFTONE_HD void softmax_backward_row(extent width, const Y& y, const D& dy, double scale, const X& dx) {
    double sum = 0;
    for (extent j = 0; j < width; ++j) sum += dy(j) * y(j);
    for (extent j = 0; j < width; ++j) dx(j, scale * (y(j) * (dy(j) - sum)));
}
/// dx = s (dy - exp(y) (sum of dy))
HALFTONE_KERNEL template <class Y, class D, class X>
HALFTONE_HD void log_softmax_backward_row(extent width, const Y& y, const D& dy, double scale, const X& dx) {
    double sum = 0;
    for (extent j = 0; j < width; ++j) sum += dy(j);
    for (extent j = 0; j < width; ++j) dx(j, scale * (dy(j) - std::exp(y(j)) * sum));
}

/// y = exp(s x) / (sum over the row of exp(s x)).
template <class X, class Y>
void softmax(const view<X, 2>& x, double scale, const view<Y, 2>& y) {  // both (rows, width)
    for (extent i = 0; i < x.extent_of(0); ++i) softmax_row(x.extent_of(1), read_row(x, i), scale, write_row(y, i));
}
/// y = s x - log(sum over the row of exp(s x)).
template <class X, class Y>
void log_softmax(const view<X, 2>& x, double scale, const view<Y, 2>& y) {
    for (extent i = 0; i < x.extent_of(0); ++i) log_softmax_row(x.extent_of(1), read_row(x, i), scale, write_row(y, i));
}
/// dx = s y (dy - sum of dy y), given y and the gradient dy of it.
template <class Y, class D, class X>
void softmax_backward(const view<Y, 2>& y, const view<D, 2>& dy, double scale, const view<X, 2>& dx) {
    for (extent i = 0; i < y.extent_of(0); ++i)
        softmax_backward_row(y.extent_of(1), read_row(y, i), read_row(dy, i), scale, write_row(dx, i));
}
/// dx = s (dy - exp(y) (sum of dy)), given y and the gradient dy of it.
template <class Y, class D, class X>
void log_softmax_backward(const view<Y, 2>& y, const view<D, 2>& dy, double scale, const view<X, 2>& dx) {
    for (extent i = 0; i < y.extent_of(0); ++i)
        log_softmax_backward_row(y.extent_of(1), read_row(y, i), read_row(dy, i), scale, write_row(dx, i));
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
