// SPDX-License-Identifier: MIT
/// \file
/// Reductions along any axes of a tensor: sums, means, variances, products, the largest and the smallest and where they are,
/// the logarithm of a sum of exponentials; and their gradients. function.hpp has the functions that call them.
///
///     ht::sum(device, x, ht::axes<0, 2>, y);                 // x: (4, 5, 6), y: (5)
///     kernel::axis_reduction<cpu>::run(device, kernel::reduction<float, float>{
///         .x = x.data(), .layout = kernel::axis_layout_of(x, ht::axes<1>), .y = y.data()});          // what it calls
///
/// Numeric contract: elements are widened to float. Sums: of a block of at most axis_block elements in float (of more on a
/// GPU), along at most axis_depth additions; the blocks in double; so that the error of a sum does not grow with its length.
/// A variance is made in two passes, the mean first. What is made of the double is rounded to float, and that once to the
/// result's type. Largest and smallest are exact; a NaN among the elements is both. A sum of exponentials subtracts the
/// largest first, where that is finite. Products are made as sums are, in float in a block, where they may leave float's range
/// although the whole product does not; a product's error is one rounding for each of its elements. The cut into pieces follows from shape and strides alone. Where a view holds
/// doubles, all is in double, in the elements' order (reference.hpp).
#pragma once

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

/// What is made of the elements of an output.
enum class axis_operation {
    sum,        ///< factor times their sum
    var,        ///< factor times the sum of the squares of their distances from their mean
    logsumexp,  ///< log of the sum of their exponentials
    amax,       ///< the largest, or a NaN
    amin,       ///< the smallest, or a NaN
    prod,       ///< their product
};

/// What a pass over the elements adds up or compares; p is the output's parameter.
enum class axis_term {
    value,        ///< x, summed
    square,       ///< (x - p)^2, summed
    exponential,  ///< exp(x - p), summed
    equal,        ///< 1 where x is p, summed
    maximum,      ///< x, the largest
    minimum,      ///< x, the smallest
    product,      ///< x, or p where x is 0, multiplied
};

/// Elements that a CPU sums in float, and the additions in float that a term passes through at most: a chain in each lane of
/// four vectors of four, four vectors, the lanes; or on a GPU in each of 256 threads (32, eight in columns), then these.
inline constexpr extent axis_block = 512;
constexpr extent axis_depth(extent size) { return (size < axis_block ? size : axis_block) / 8 + 9; }

/// What a reduction reads and writes. Outputs are contiguous, in the order of the axes that are kept.
template <class X, class Y>
struct reduction {
    const X* x;          ///< the element of index 0 along all axes
    axis_layout layout;  ///< of x
    Y* y;                ///< an output each
    axis_operation operation = axis_operation::sum;
    double factor = 1;  ///< of sum and var
    statistic<X, Y>* kept =
        nullptr;  ///< where not nullptr: for each output what its gradient reads, unrounded: the mean
                  ///< of var, the result of others
    write_mode mode = write_mode::overwrite;  ///< of y
};

/// What the gradient of a reduction reads and writes: dx = (or +=) its share of dy.
template <class X, class Y>
struct reduction_gradient {
    const X* x;                   ///< contiguous, as dx; not read by that of a sum
    axis_layout layout;           ///< of both
    const statistic<X, Y>* kept;  ///< as the forward pass left it; not read by those of a sum and of a product
    const Y* dy;
    X* dx;
    axis_operation operation = axis_operation::sum;
    double factor = 1;  ///< the forward pass's
    write_mode mode = write_mode::overwrite;
};

/// Where the largest (or smallest) of an output's elements is first, counted along the axes that are reduced; a NaN is
/// larger, and smaller, than any number.
template <class X>
struct reduction_index {
    const X* x;
    axis_layout layout;
    std::int32_t* y;
    axis_operation operation = axis_operation::amax;  ///< or amin
};

/// Sums along an axis of all elements up to each: y[i] = the sum of x[0] to x[i]; or from the other end. x and y are
/// contiguous, (outer, count, inner).
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

/// Whether a pass looks for the largest or the smallest, and does not sum.
HALFTONE_HD constexpr bool is_choice(axis_term term) {
    return term == axis_term::maximum || term == axis_term::minimum;
}
inline constexpr float beyond_all = std::numeric_limits<float>::infinity();
/// What a pass over no elements gives.
HALFTONE_HD constexpr float nothing_of(axis_term term) {
    return term == axis_term::maximum   ? -beyond_all
           : term == axis_term::minimum ? beyond_all
           : term == axis_term::product ? 1.0f
                                        : 0.0f;
}
/// Two results of passes as one. A NaN is larger, and smaller, than any number.
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
/// The largest of an output's elements as what is subtracted before exponentials are taken: 0 in an infinity's place.
template <class T>
HALFTONE_HD constexpr T finite_shift(T largest) {
    return is_inf(largest) ? T(0) : largest;
}

/// What the elements of a product share its gradient by: q at a zero, q p / x at others. `others` is the product of all elements
/// but zeros. Where one element is zero, it alone has a gradient; where several are, none has.
template <class T>
struct product_shares {
    T p, q;

    HALFTONE_HD static constexpr product_shares of(T others, T zeros, T dy) {
        if (zeros == T(0)) return {others, dy};
        return {T(0), zeros == T(1) ? dy * others : T(0)};
    }
};

/// Throws shape_error where there is nothing to choose from.
inline void expect_elements(const char* operation, const axis_layout& l) {
    if (l.reduced_size == 0)
        fail<shape_error>(
            operation,
            ": there are no elements along the axes that are reduced, so none is the largest or the smallest");
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
