// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy of logits against class indices: -log softmax(logits)[target] of every row, and the mean over rows.
///
///     ht::cross_entropy<ht::amp_bf16>(device, logits, targets, losses, maximum, sum, loss, count);
///     ht::cross_entropy_gradients<ht::amp_bf16>(device, logits, targets, maximum, sum, gradient, count, dlogits);
///
///     kernel::cross_entropy<cpu>::forward<bfloat16>(                  // what they call
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
#include <halftone/kernel/function.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// What the forward pass reads and writes.
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

/// What the gradient is made of, and where it goes.
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

/// Throws shape_error where the arguments do not fit together.
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

/// Throws shape_error where the arguments do not fit together.
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

/// losses = -log softmax(logits)[target], row by row, in nats. logits: (rows, classes), whose rows may lie apart; targets:
/// (rows) of std::int32_t, 0 to classes - 1, or ignore_index, whose row has loss 0. losses, maximum and sum: (rows), float, or
/// double where the logits are; the latter two are the largest logit and the sum of exp(logits - maximum), which
/// cross_entropy_gradients needs. loss and count: (1), the mean over the rows that count, NaN where none does, and how many
/// these are; each perhaps without data. Throws shape_error, and where the host can read the targets argument_error for one
/// that is no class; elsewhere its row's loss is NaN.
template <class P, class Device, class X, class Losses, class Maximum, class Sum, class Loss, class Count>
    requires(detail::kernel_device<Device> && detail::viewables<X, Losses, Maximum, Sum, Loss, Count>)
void cross_entropy(Device& device, const X& logits, const const_view<std::int32_t, 1>& targets, const Losses& losses,
                   const Maximum& maximum, const Sum& sum, const Loss& loss, const Count& count,
                   std::int32_t ignore_index = -100) {
    static_assert(detail::check_function<P, detail::element_in<X>>());
    static_assert(detail::check_ranks<2, X>() && detail::check_ranks<1, Losses, Maximum, Sum, Loss, Count>());
    kernel::cross_entropy<Device>::forward(
        device, kernel::cross_entropy_forward<detail::element_in<X>>{.logits = as_view(logits),
                                                                     .targets = targets,
                                                                     .losses = as_view(losses),
                                                                     .maximum = as_view(maximum),
                                                                     .sum = as_view(sum),
                                                                     .loss = as_view(loss),
                                                                     .count = as_view(count),
                                                                     .ignore_index = ignore_index});
}
/// Says what is missing, where a compiler would say that no function matches.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void cross_entropy(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: cross_entropy is called without a policy: ht::cross_entropy<ht::amp_bf16>(device, logits, "
                  "targets, losses, maximum, sum, loss, count)");
}

/// The gradient of cross_entropy by the logits: (exp(logits - maximum) / sum - [is the target]) gradient / count. maximum, sum
/// and count are those that the forward pass left. gradient: (1), that of the mean, or (rows), those of the losses, and count
/// then a view without data. dlogits: (rows, classes), overwritten; it may be the logits where the types agree. Throws as
/// cross_entropy does.
template <class P, class Device, class X, class Maximum, class Sum, class Gradient, class Count, class D>
    requires(detail::kernel_device<Device> && detail::viewables<X, Maximum, Sum, Gradient, Count, D>)
void cross_entropy_gradients(Device& device, const X& logits, const const_view<std::int32_t, 1>& targets,
                             const Maximum& maximum, const Sum& sum, const Gradient& gradient, const Count& count,
                             const D& dlogits, std::int32_t ignore_index = -100) {
    using arguments = kernel::cross_entropy_backward<detail::element_in<X>, detail::element_in<D>>;
    static_assert(detail::check_function<P, detail::element_in<X>, detail::element_in<D>>());
    static_assert(detail::check_ranks<2, X, D>() && detail::check_ranks<1, Maximum, Sum, Gradient, Count>());
    kernel::cross_entropy<Device>::backward(device, arguments{.logits = as_view(logits),
                                                              .targets = targets,
                                                              .maximum = as_view(maximum),
                                                              .sum = as_view(sum),
                                                              .gradient = as_view(gradient),
                                                              .count = as_view(count),
                                                              .dlogits = as_view(dlogits),
                                                              .ignore_index = ignore_index});
}
/// Says what is missing, where a compiler would say that no function matches.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void cross_entropy_gradients(Device&, const Views&...) {
    static_assert(
        sizeof(Device*) == 0,
        "halftone: cross_entropy_gradients is called without a policy: "
        "ht::cross_entropy_gradients<ht::amp_bf16>(device, logits, targets, maximum, sum, gradient, count, dlogits)");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
