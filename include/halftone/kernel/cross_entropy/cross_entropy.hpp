// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy of logits against class indices: -log softmax(logits)[target] of every row, and the mean over rows.
///
///     kernel::cross_entropy<cpu>::forward<bfloat16>(
///         device, {.logits = x, .targets = t, .losses = l, .maximum = m, .sum = s, .loss = mean, .count = n});
///     kernel::cross_entropy<cpu>::backward<bfloat16, bfloat16>(       // in place
///         device, {.logits = x, .targets = t, .maximum = m, .sum = s, .gradient = dl, .count = n, .dlogits = x});
///
/// Numeric contract: everything in float, the row's maximum subtracted first; the mean adds losses in double by a tree
/// fixed by their number; dlogits is rounded once. What is kept of a row are its maximum and its sum, apart: added up,
/// a maximum of 1e7 would swallow the logarithm of the sum. So the gradient, (exp(x - maximum) - [x is the target's]
/// sum) (gradient / count / sum), is as right where a constant is added to all logits of a row as it is without, and so
/// is the loss; only the logits' own rounding is not undone. Rows whose target is `ignore_index` have loss 0 and gradient 0 and
/// do not count; where no row counts the mean is NaN. All as in PyTorch. Of doubles: all in double
/// (kernel/common/fp64/each.hpp). An exponential of logits of 16 bits errs by up to (0.875 + d / 16) 2^-18 on a CPU, d being
/// the distance to the maximum, which is exact, and by less on a GPU: the loss of such a row is right to some 5e-6,
/// where its class is certain to far less.
#pragma once

#include <cstdint>

#include <halftone/kernel/common/fp64/fp64.hpp>
#include <halftone/kernel/expect.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <class X>
struct cross_entropy_forward {
    const_view<X, 2> logits;              ///< (rows, classes); rows may lie apart
    const_view<std::int32_t, 1> targets;  ///< (rows), 0 to classes - 1, or ignore_index
    view<statistic<X>, 1> losses;         ///< (rows)
    view<statistic<X>, 1> maximum;        ///< (rows), the largest logit; what backward needs, as it does
    view<statistic<X>, 1> sum;            ///< (rows), of exp(logits - maximum): logsumexp is maximum + log(sum)
    view<statistic<X>, 1> loss{};         ///< (1), the mean over rows that count, or none: not wanted
    view<statistic<X>, 1> count{};        ///< (1), the number of rows that count, or none
    std::int32_t ignore_index = -100;
};

template <class X, class D>
struct cross_entropy_backward {
    const_view<X, 2> logits;              ///< (rows, classes)
    const_view<std::int32_t, 1> targets;  ///< (rows), as the forward pass had them
    const_view<statistic<X, D>, 1> maximum;   ///< (rows), as the forward pass left it
    const_view<statistic<X, D>, 1> sum;       ///< (rows), as the forward pass left it
    const_view<statistic<X, D>, 1> gradient;  ///< of the mean: (1); of each row's loss: (rows)
    const_view<statistic<X, D>, 1> count{};   ///< (1), what the gradient is divided by, or none: not divided
    view<D, 2> dlogits;                       ///< (rows, classes); may be the logits where the types agree
    std::int32_t ignore_index = -100;
};

/// check_targets(device, logits' classes, targets, ignore_index), forward = check_targets, forward_rows and, where one
/// is wanted, mean(device, losses, targets, loss, count, ignore_index), the last two either or both; backward.
/// forward_rows and backward also serve a few rows of a larger batch, whose `count` is then that of the whole. Throw
/// shape_error, and where the host can read the targets argument_error for one that is no class; elsewhere its row's
/// loss and gradient are NaN.
template <class Device>
struct cross_entropy;

template <class X>
void check(const cross_entropy_forward<X>& a) {
    const extent rows = a.logits.extent_of(0);
    expect_rows("cross_entropy", "logits", a.logits, a.logits.shape());
    expect("cross_entropy", "targets", a.targets, {rows});
    expect("cross_entropy", "losses", a.losses, {rows});
    expect("cross_entropy", "maximum", a.maximum, {rows});
    expect("cross_entropy", "sum", a.sum, {rows});
    expect_optional("cross_entropy", "loss", a.loss, {1});
    expect_optional("cross_entropy", "count", a.count, {1});
}

template <class X, class D>
void check(const cross_entropy_backward<X, D>& a) {
    const extent rows = a.logits.extent_of(0);
    expect_rows("cross_entropy backward", "logits", a.logits, a.logits.shape());
    expect("cross_entropy backward", "targets", a.targets, {rows});
    expect("cross_entropy backward", "maximum", a.maximum, {rows});
    expect("cross_entropy backward", "sum", a.sum, {rows});
    expect("cross_entropy backward", "gradient", a.gradient, {a.gradient.extent_of(0) == 1 ? 1 : rows});
    expect_optional("cross_entropy backward", "count", a.count, {1});
    expect_written_rows("cross_entropy backward", "dlogits", a.dlogits, a.logits.shape());
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
