// SPDX-License-Identifier: MIT
/// \file
/// Softmax of every row, and its logarithm: y = exp(s x) / (sum of exp(s x)), with a scale s.
///
///     kernel::softmax<cpu>::forward<bfloat16, bfloat16>(device, {.x = scores, .y = probabilities, .scale = 0.125f});
///     kernel::log_softmax<cpu>::forward<bfloat16, float>(device, {.x = logits, .y = log_probabilities});
///
/// Numeric contract: the row's maximum (of a negative s: minimum) is subtracted first, so that nothing overflows, then s
/// is multiplied by what is left: y is as right where a constant is added to all of a row as it is without. Everything
/// in float (with doubles: in double, as fp64/each.hpp says), where differences beyond the largest number are infinite;
/// y rounded once. An element of -infinity gives exactly 0 (log_softmax:
/// -infinity); a row of nothing else gives NaN, as does a row that holds a NaN or +infinity. All as in PyTorch. An
/// exponential for a y of 16 bits errs by up to (0.875 + d / 16) 2^-18 on a CPU, d being the distance to the maximum,
/// and by less on a GPU, where one below 2^-126 is 0: hardly a hundredth of what rounding y to bfloat16 does.
/// Rows may lie apart.
#pragma once

#include <halftone/kernel/common/fp64/fp64.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/write_mode.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <class X, class Y>
struct softmax_forward {
    const_view<X, 2> x;         ///< (rows, width)
    view<Y, 2> y;               ///< (rows, width); may be x where the types agree
    statistic<X, Y> scale = 1;  ///< s
};

/// From the result, so that x need not be kept.
template <class X, class Y>
struct softmax_backward {
    const_view<Y, 2> y;         ///< (rows, width), as the forward pass left it
    const_view<Y, 2> dy;        ///< (rows, width)
    view<X, 2> dx;              ///< (rows, width); may be dy where the types agree
    statistic<X, Y> scale = 1;  ///< the forward pass's
    write_mode mode = write_mode::overwrite;
};

/// forward and backward of one device. Throw shape_error.
template <class Device>
struct softmax;

/// The same for y = s x - log(sum of exp(s x)).
template <class Device>
struct log_softmax;

template <class X, class Y>
void check(const softmax_forward<X, Y>& a) {
    expect_rows("softmax", "x", a.x, a.x.shape());
    expect_rows("softmax", "y", a.y, a.x.shape());
}

template <class X, class Y>
void check(const softmax_backward<X, Y>& a) {
    expect_rows("softmax backward", "y", a.y, a.y.shape());
    expect_rows("softmax backward", "dy", a.dy, a.y.shape());
    expect_rows("softmax backward", "dx", a.dx, a.y.shape());
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
