// SPDX-License-Identifier: MIT
/// \file
/// Reductions along any axes of a tensor: sums, means, variances and their roots, products, the largest and the
/// smallest element and their indices, the logarithm of a sum of exponentials; and their gradients. function.hpp has
/// the functions that call them.
///
///     ht::sum(device, x, ht::axes<0, 2>, y);                 // x: (4, 5, 6), y: (5)
///     kernel::axis_reduction<cpu>::run(device, kernel::reduction<float, float>{
///         .x = x.data(), .layout = kernel::axis_layout_of(x, ht::axes<1>), .y = y.data()});          // called by ht::sum
///
/// Numeric contract: elements are widened to float. Sums are computed in float within blocks of at most axis_block
/// elements (on a GPU of more), such that a term passes through at most axis_depth additions; the sums of blocks are
/// added in double. So the error of a sum does not grow with its length; but where a partial sum within a block leaves
/// float's range, the sum is infinite or NaN. A variance takes two passes, the first for the mean; on a GPU squares are
/// about the mean as a float, whose error's square the variance is off by; on a CPU about the mean of earlier blocks,
/// if that is near the block's own, or about that, and are joined in double. A value computed from a sum in double is
/// rounded to float, and then once to the result's type. A variance or a standard deviation of which a sum or a square
/// leaves float's range (deviation_range), and gradients of a standard deviation of which a factor does
/// (deviation_slope), are computed again in double, on a CPU by one thread for all elements of the output. If the
/// divisor n - correction is 0 or less, both are infinite, and NaN if all elements are equal. The gradients of both
/// take the mean as a float, so that they are off by up to 2^-24 |mean| in units of x. The largest and the smallest
/// element are exact; if an element is NaN, both are NaN. A sum of exponentials subtracts the largest element first, if
/// that is finite; on a CPU a number that differs from it by at most 2. Products are computed in blocks like sums: in
/// float within a block, where they may leave float's range even if the whole product does not; the error of a product
/// is one rounding per element. The gradients of an output whose product, zeros apart, is 0 or infinite there are
/// computed again in double, by one thread for all elements of the output. The division into blocks depends only on
/// shape and strides. If a view has doubles, everything is computed in double, in the order of the elements
/// (reference.hpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <halftone/kernel/axis_reduction/along/layout.hpp>
#include <halftone/kernel/common/fp64/fp64.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/write_mode.hpp>
#include <halftone/number/classify.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The function of an output's elements.
enum class axis_operation {
    sum,        ///< factor times the sum
    var,        ///< factor times the sum of (x - mean)^2
    logsumexp,  ///< log of the sum of exp(x)
    amax,       ///< the largest, or NaN
    amin,       ///< the smallest, or NaN
    prod,       ///< the product
    std_dev,    ///< the square root of factor times the sum of (x - mean)^2
};

/// The terms that a pass over the elements sums, multiplies or compares; p is the output's parameter.
enum class axis_term {
    value,        ///< x, summed
    square,       ///< (x - p)^2, summed
    exponential,  ///< exp(x - p), summed
    equal,        ///< 1 if x equals p, summed
    maximum,      ///< x, the largest
    minimum,      ///< x, the smallest
    product,      ///< x, or p if x is 0, multiplied
};

/// axis_block: the number of elements that a CPU sums in float. axis_depth: the number of additions in float that a
/// term passes through at most. On a CPU these are a chain in each lane of four vectors of four floats, then the four
/// vectors, then the lanes. On a GPU a thread adds the elements of each vector of 16 bytes in a chain, the vectors in a
/// chain, and then the threads' sums are added: 256 threads reduce 16384 elements, or a warp at most 8192, which are
/// in each lane at most 64 vectors of 4 elements and one more element (3 + 64 + 5 additions); 1024 if it reads
/// single elements; for columns each of eight warps adds every eighth of 512 rows.
inline constexpr extent axis_block = 512;
constexpr extent axis_depth(extent size) { return (size < axis_block ? size : axis_block) / 8 + 9; }

/// The arguments of a reduction. Outputs are contiguous, in the order of the axes that are kept.
template <class X, class Y>
struct reduction {
    const X* x;          ///< the element of index 0 along all axes
    axis_layout layout;  ///< the kept and reduced axes of x
    Y* y;                ///< (outputs)
    axis_operation operation = axis_operation::sum;
    double factor = 1;  ///< for sum, var and std_dev
    statistic<X, Y>* kept =
        nullptr;  ///< if not nullptr, receives for each output the float that its gradient needs: the mean
                  ///< for var, else the unrounded result; for std_dev all means and then all unrounded results
    write_mode mode = write_mode::overwrite;  ///< of y
};

/// The number of values of reduction's `kept`.
inline extent kept_values(axis_operation operation, const axis_layout& l) {
    return operation == axis_operation::std_dev ? 2 * l.outputs : l.outputs;
}

/// The arguments of the gradient of a reduction: dx = (or +=) the contribution of dy to each element.
template <class X, class Y>
struct reduction_gradient {
    const X* x;                   ///< contiguous, as dx; not read for a sum
    axis_layout layout;           ///< of x and dx
    const statistic<X, Y>* kept;  ///< from the forward pass; not read for sums and products
    const Y* dy;
    X* dx;
    axis_operation operation = axis_operation::sum;
    double factor = 1;  ///< as in the forward pass
    write_mode mode = write_mode::overwrite;
};

/// The arguments of the search for the first largest (or smallest) of each output's elements. The index counts elements
/// along the reduced axes; NaN counts as larger, and as smaller, than any number.
template <class X>
struct reduction_index {
    const X* x;
    axis_layout layout;
    std::int32_t* y;
    axis_operation operation = axis_operation::amax;  ///< amax or amin
};

/// The arguments of cumulative sums along an axis: y[i] = the sum of x[0] to x[i], or, reversed, of x[i] to the last
/// element. x and y are contiguous, (outer, count, inner). On a GPU, sums along rows (inner = 1) add the elements of a
/// vector of at most 16 in float, in at most four additions, and vectors in double; all other sums are in double.
template <class X, class Y>
struct running_sum {
    const X* x;
    shape<3> extents;
    Y* y;
    bool is_reversed = false;
    write_mode mode = write_mode::overwrite;
};

/// Specialised for each device: run(device, reduction), backward(device, reduction_gradient), index(device,
/// reduction_index), accumulate(device, running_sum).
template <class Device>
struct axis_reduction;

/// Whether a pass determines the largest or the smallest element instead of a sum.
HALFTONE_HD constexpr bool is_choice(axis_term term) {
    return term == axis_term::maximum || term == axis_term::minimum;
}
inline constexpr float beyond_all = std::numeric_limits<float>::infinity();
/// The result of a pass over no elements.
HALFTONE_HD constexpr float nothing_of(axis_term term) {
    return term == axis_term::maximum   ? -beyond_all
           : term == axis_term::minimum ? beyond_all
           : term == axis_term::product ? 1.0f
                                        : 0.0f;
}
/// Combines the results of two passes. NaN counts as larger, and as smaller, than any number.
template <axis_term Term, class T>
HALFTONE_HD constexpr T combine(T a, T b) {
    if constexpr (Term == axis_term::maximum) {
        return is_nan(a) ? a : is_nan(b) ? b : a < b ? b : a;
    } else if constexpr (Term == axis_term::minimum) {
        return is_nan(a) ? a : is_nan(b) ? b : b < a ? b : a;
    } else if constexpr (Term == axis_term::product) {
        return a * b;
    } else {
        return a + b;
    }
}
/// The value that is subtracted before exponentials are taken: the largest element, or 0 if that is infinite.
template <class T>
HALFTONE_HD constexpr T finite_shift(T largest) {
    return is_inf(largest) ? T(0) : largest;
}

/// Whether the product of an output's elements that are not zero says nothing about the product of all but one of them:
/// an element is infinite, or the product left float's range. Such outputs' gradients are computed in double instead
/// (fp64::gradient_of_some).
template <class T>
HALFTONE_HD constexpr bool is_product_beyond_range(T others) {
    return is_inf(others) || others == T(0);
}
/// The gradients of a product's factors: q for a factor that is zero, q p / x for the others. `others` is the product
/// of all elements that are not zero. If exactly one element is zero, only that one has a gradient; if several are, no
/// element has one. All are 0 where is_product_beyond_range(others).
template <class T>
struct product_shares {
    T p, q;

    HALFTONE_HD static constexpr product_shares of(T others, T zeros, T dy) {
        if (is_product_beyond_range(others)) return {T(0), T(0)};
        if (zeros == T(0)) return {others, dy};
        return {T(0), zeros == T(1) ? dy * others : dy * (T(0) * others)};
    }
};

/// Which variances, or standard deviations, in float follow from squares that float holds: not those that are infinite
/// or NaN, nor those whose mean square is below 2^-96, of which squares that underflow may be more than 2^-30. They are
/// computed in double instead.
struct deviation_range {
    float least;

    /// The range for factor times the sum of `size` squares (var), or its square root (std_dev).
    static deviation_range of(axis_operation operation, extent size, double factor) {
        const double least = 0x1p-96 * factor * static_cast<double>(size);
        return {static_cast<float>(operation == axis_operation::var ? least : std::sqrt(least))};
    }
    HALFTONE_HD constexpr bool is_left_by(float found) const { return is_nan(found) || is_inf(found) || found < least; }
};
/// The gradients of a standard deviation are q (x - mean), with q = factor dy / deviation, and 0 if it is 0.
struct deviation_slope {
    float q;
    bool is_beyond;  ///< float does not hold the factors, and q is 0: the gradients are computed in double instead

    HALFTONE_HD static constexpr deviation_slope of(const deviation_range& range, float deviation, float dy,
                                                    float factor) {
        if (deviation == 0.0f || dy == 0.0f) return {0.0f, is_nan(deviation)};
        const float q = dy / deviation * factor, size = q < 0.0f ? -q : q;
        const bool is_held =
            !range.is_left_by(deviation) && deviation <= 0x1p100f && size >= 0x1p-100f && size <= 0x1p100f;
        return {is_held ? q : 0.0f, !is_held};
    }
};

/// Throws shape_error if there are no elements to choose from.
inline void expect_elements(const char* operation, const axis_layout& l) {
    if (l.reduced_size == 0)
        fail<shape_error>(
            operation,
            ": there are no elements along the axes that are reduced, so none is the largest or the smallest");
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
