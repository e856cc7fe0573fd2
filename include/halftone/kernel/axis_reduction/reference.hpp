// SPDX-License-Identifier: MIT
/// \file
/// The definition of reductions along axes and of their gradients, in double.
///
///     reference::reduce(x, ht::axes<1>, kernel::axis_operation::sum, 1.0, y);
///
/// The functions of one output are also those that the kernels in double call (fp64.hpp). They read element i of the
/// output's elements as x(i).
#pragma once

#include <cmath>

#include <halftone/exec/simt/memory.hpp>
#include <halftone/kernel/axis_reduction/axis_reduction.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// The result of a reduction, and the value that its gradient reads: the mean for a variance or a standard deviation,
/// otherwise the result.
struct reduced {
    double value, kept;
};

/// The sum of all x(i).
HALFTONE_KERNEL template <class X>
HALFTONE_HD double sum_of(extent size, const X& x) {
    double sum = 0;
    for (extent i = 0; i < size; ++i) sum += x(i);
    return sum;
}
/// The first of the largest (or smallest) elements, where NaN counts as larger (or smaller) than any number; 0 if there
/// are no elements.
HALFTONE_KERNEL template <class X>
HALFTONE_HD extent index_of_most(extent size, const X& x, bool largest) {
    extent at = 0;
    for (extent i = 1; i < size; ++i) {
        if (is_nan(x(at))) return at;
        if (is_nan(x(i)) || (largest ? x(i) > x(at) : x(i) < x(at))) at = i;
    }
    return at;
}
/// factor * sum (x - m)^2, where m is the mean.
HALFTONE_KERNEL template <class X>
HALFTONE_HD reduced variance_of(extent size, const X& x, double factor) {
    const double mean = sum_of(size, x) / static_cast<double>(size);
    double squares = 0;
    for (extent i = 0; i < size; ++i) squares += (x(i) - mean) * (x(i) - mean);
    return {factor * squares, mean};
}
/// The square root of variance_of's value. Where that leaves double's range, squares are of differences divided by the
/// largest one.
HALFTONE_KERNEL template <class X>
HALFTONE_HD reduced deviation_of(extent size, const X& x, double factor) {
    const auto [square, mean] = variance_of(size, x, factor);
    if (is_nan(square) || (square > 0x1p-900 && square < 0x1p900)) return {std::sqrt(square), mean};
    double largest = 0, squares = 0;
    for (extent i = 0; i < size; ++i) largest = std::fmax(largest, std::fabs(x(i) - mean));
    if (largest == 0 || is_inf(largest)) return {std::sqrt(square), mean};
    for (extent i = 0; i < size; ++i) squares += (x(i) - mean) / largest * ((x(i) - mean) / largest);
    return {largest * std::sqrt(factor * squares), mean};
}
/// log(sum exp(x)), computed with exp(x - m), where m is the largest x, or 0 if that is infinite.
HALFTONE_KERNEL template <class X>
HALFTONE_HD double log_of_exponentials(extent size, const X& x) {
    if (size == 0) return -HUGE_VAL;
    const double shift = kernel::finite_shift(x(index_of_most(size, x, true)));
    double sum = 0;
    for (extent i = 0; i < size; ++i) sum += std::exp(x(i) - shift);
    return std::log(sum) + shift;
}

/// The product of all x(i).
HALFTONE_KERNEL template <class X>
HALFTONE_HD double product_of(extent size, const X& x) {
    double product = 1;
    for (extent i = 0; i < size; ++i) product *= x(i);
    return product;
}

/// The product of all elements but one. Zeros and infinities are counted; of infinities `rest` has the sign, so that any
/// element can be taken out of the product by a division.
struct product_but_one {
    double rest = 1;
    extent zeros = 0, infinities = 0;

    /// Multiplies by `x`.
    HALFTONE_HD void take(double x) {
        rest *= factor_of(x);
        zeros += x == 0 ? 1 : 0;
        infinities += is_inf(x) ? 1 : 0;
    }
    /// The product of all elements taken but `x`, which is one of them; NaN if one of all elements is NaN.
    HALFTONE_HD double without(double x) const {
        double product = rest / factor_of(x);
        if (infinities > (is_inf(x) ? 1 : 0)) product *= HUGE_VAL;
        return zeros > (x == 0 ? 1 : 0) ? 0.0 * product : product;
    }

  private:
    HALFTONE_HD static double factor_of(double x) { return x == 0 ? 1.0 : is_inf(x) ? (x < 0 ? -1.0 : 1.0) : x; }
};

/// A reduction of all x(i), chosen by `operation`.
HALFTONE_KERNEL template <class X>
HALFTONE_HD reduced reduce_elements(kernel::axis_operation operation, extent size, const X& x, double factor) {
    using enum kernel::axis_operation;
    if (operation == var) return variance_of(size, x, factor);
    if (operation == std_dev) return deviation_of(size, x, factor);
    const double y = operation == sum         ? factor * sum_of(size, x)
                     : operation == prod      ? product_of(size, x)
                     : operation == logsumexp ? log_of_exponentials(size, x)
                                              : x(index_of_most(size, x, operation == amax));
    return {y, y};
}

/// The gradients of an output's elements from the output's gradient dy: calls dx(i, gradient).
///
///     sum: factor dy      var: 2 factor (x - mean) dy      logsumexp: exp(x - y) dy
///     amax, amin: dy / (number of x equal to y) if x equals y, else 0 times that, which passes NaN on
///     prod: dy times the product of all other x; NaN for every x if one of them is NaN
///     std_dev: factor (x - mean) dy / y, and 0 if y is 0; mean and y are computed from x
HALFTONE_KERNEL template <class X, class To>
HALFTONE_HD void reduce_gradient(kernel::axis_operation operation, extent size, const X& x, double kept, double dy,
                                 double factor, const To& dx) {
    using enum kernel::axis_operation;
    if (operation == prod) {
        product_but_one all;
        for (extent i = 0; i < size; ++i) all.take(x(i));
        for (extent i = 0; i < size; ++i) dx(i, dy * all.without(x(i)));
        return;
    }
    if (operation == std_dev) {
        const auto [deviation, mean] = deviation_of(size, x, factor);
        for (extent i = 0; i < size; ++i) dx(i, deviation == 0 ? 0.0 : factor * ((x(i) - mean) / deviation) * dy);
        return;
    }
    const bool chooses = operation == amax || operation == amin;
    double count = 0;
    for (extent i = 0; chooses && i < size; ++i) count += x(i) == kept ? 1 : 0;
    for (extent i = 0; i < size; ++i) {
        dx(i, operation == sum         ? factor * dy
              : operation == var       ? 2 * factor * (x(i) - kept) * dy
              : operation == logsumexp ? std::exp(x(i) - kept) * dy
              : x(i) == kept           ? dy / count
                                       : 0.0 * (dy / count));
    }
}

/// y = the reduction of x along these axes; y is contiguous, of any rank.
template <class X, int Rank, int... Axes, class Y, int Out>
void reduce(const view<X, Rank>& x, axis_list<Axes...> along, kernel::axis_operation operation, double factor,
            const view<Y, Out>& y) {
    const kernel::axis_layout l = kernel::axis_layout_of(x, along);
    for (extent o = 0; o < l.outputs; ++o) {
        const auto element = [&](extent i) {
            return static_cast<double>(x.data()[l.output_offset(o) + l.reduced_offset(i)]);
        };
        y.data()[o] = static_cast<Y>(reduce_elements(operation, l.reduced_size, element, factor).value);
    }
}

/// y[i] = the sum of x[0] to x[i] along the middle axis, or, reversed, of x[i] to the last element.
template <class X, class Y>
void running_sum(const view<X, 3>& x, bool is_reversed, const view<Y, 3>& y) {
    const shape<3>& s = x.shape();
    for (extent o = 0; o < s[0]; ++o) {
        for (extent j = 0; j < s[2]; ++j) {
            double sum = 0;
            for (extent k = 0; k < s[1]; ++k) {
                const extent i = is_reversed ? s[1] - 1 - k : k;
                sum += static_cast<double>(x(o, i, j));
                y(o, i, j) = static_cast<Y>(sum);
            }
        }
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
