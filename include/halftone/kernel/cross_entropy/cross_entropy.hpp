// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy of logits and class indices: -log softmax(logits)[target] of every row, and the mean over rows.
///
///     ht::cross_entropy<ht::amp_bf16>(device, logits, targets, losses, maximum, sum, loss, count);
///     ht::cross_entropy_gradients<ht::amp_bf16>(device, logits, targets, maximum, sum, gradient, count, dlogits);
///
///     kernel::cross_entropy<cpu>::forward<bfloat16>(                  // which both call
///         device, {.logits = x, .targets = t, .losses = l, .maximum = m, .sum = s, .loss = mean, .count = n});
///     kernel::cross_entropy<cpu>::backward<bfloat16, bfloat16>(       // in place
///         device, {.logits = x, .targets = t, .maximum = m, .sum = s, .gradient = dl, .count = n, .dlogits = x});
///
/// Numeric contract: computed in float, relative to each row's maximum; the mean adds losses in double by a tree that
/// depends on their number; dlogits is rounded once. The backward pass needs each row's maximum and sum of
/// exponentials, which are stored separately: in maximum + log(sum) a maximum of 1e7 would swallow the logarithm. So a
/// constant added to all logits of a row changes neither the accuracy of the gradient, (exp(x - maximum) - [x is the
/// target's] sum) (gradient / count / sum), nor of the loss, except for the logits' own rounding. Rows whose target is
/// `ignore_index` have loss 0 and gradient 0 and do not count; if no row counts, the mean is NaN. All this is as in
/// PyTorch. Doubles are computed in double throughout (kernel/common/fp64/each.hpp). For 16-bit logits exponentials
/// have a relative error of up to (0.875 + d / 16) 2^-18 on a CPU, where d is the distance to the maximum (at which the
/// exponential is exact), and less on a GPU: the loss of such a row has an absolute error of some 5e-6, much less if
/// the target's probability is near 1.
#pragma once

#include <cstdint>

#include <halftone/kernel/common/fp64/fp64.hpp>
#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/overlap.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The arguments of the forward pass.
template <class X>
struct cross_entropy_forward {
    const_view<X, 2> logits;              ///< (rows, classes), any leading dimension
    const_view<std::int32_t, 1> targets;  ///< (rows), 0 to classes - 1, or ignore_index
    view<statistic<X>, 1> losses;         ///< (rows)
    view<statistic<X>, 1> maximum;        ///< (rows), the largest logit; needed by the backward pass, as is
    view<statistic<X>, 1> sum;            ///< (rows), of exp(logits - maximum): logsumexp is maximum + log(sum)
    view<statistic<X>, 1> loss{};         ///< (1), the mean over rows that count; without data if not wanted
    view<statistic<X>, 1> count{};        ///< (1), the number of rows that count; without data if not wanted
    std::int32_t ignore_index = -100;
};

/// The arguments of the backward pass.
template <class X, class D>
struct cross_entropy_backward {
    const_view<X, 2> logits;              ///< (rows, classes)
    const_view<std::int32_t, 1> targets;  ///< (rows), as in the forward pass
    const_view<statistic<X, D>, 1> maximum;   ///< (rows), the forward pass's result
    const_view<statistic<X, D>, 1> sum;       ///< (rows), the forward pass's result
    const_view<statistic<X, D>, 1> gradient;  ///< (1), of the mean; or (rows), of each row's loss
    const_view<statistic<X, D>, 1> count{};   ///< (1), the divisor of the gradient; without data: no division
    view<D, 2> dlogits;                       ///< (rows, classes); may be the logits if the types agree
    std::int32_t ignore_index = -100;
};

/// Members: check_targets(device, number of classes, targets, ignore_index); forward, which is check_targets,
/// forward_rows and, if requested, mean(device, losses, targets, loss, count, ignore_index), whose loss and count are
/// optional; and backward. forward_rows and backward can also compute some rows of a larger batch; `count` is then that
/// of the whole batch. They throw shape_error, and argument_error for an invalid target if the host can read the
/// targets; otherwise its row's loss and gradient are NaN.
template <class Device>
struct cross_entropy;

/// Throws shape_error if the arguments do not fit together.
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

/// Throws shape_error if the arguments do not fit together.
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

namespace detail {

/// Throws shape_error if what a cross-entropy says of each row is in the memory of what is read, or of one another.
template <class Device, class X, class Losses, class Maximum, class Sum>
void expect_statistics_apart(Device& device, const char* operation, const char* read, const X& x, const Losses& losses,
                             const Maximum& maximum, const Sum& sum) {
    expect_apart(device, operation, read, x, "losses", losses);
    expect_apart(device, operation, read, x, "maximum", maximum);
    expect_apart(device, operation, read, x, "sum", sum);
    expect_apart(device, operation, "losses", losses, "maximum", maximum);
    expect_apart(device, operation, "losses", losses, "sum", sum);
    expect_apart(device, operation, "maximum", maximum, "sum", sum);
}
/// Throws shape_error if what the gradients of a cross-entropy read of the forward pass is in the memory of a gradient.
template <class Device, class Maximum, class Sum, class Gradient, class Count, class D>
void expect_read_apart(Device& device, const char* operation, const Maximum& maximum, const Sum& sum,
                       const Gradient& gradient, const Count& count, const char* written, const D& d) {
    expect_apart(device, operation, "maximum", maximum, written, d);
    expect_apart(device, operation, "sum", sum, written, d);
    expect_apart(device, operation, "gradient", gradient, written, d);
    expect_apart(device, operation, "count", count, written, d);
}

}  // namespace detail

/// losses = -log softmax(logits)[target] of each row, in nats. logits: (rows, classes), with any leading dimension;
/// targets: (rows) of std::int32_t, 0 to classes - 1, or ignore_index, whose row has loss 0. losses, maximum and sum:
/// (rows), float, or double if the logits are; maximum and sum are the largest logit and the sum of exp(logits -
/// maximum), which cross_entropy_gradients needs. loss and count, (1): the mean over the rows that count (NaN if there
/// are none), and the number of these rows; both may be views without data. Throws shape_error, and argument_error for
/// an invalid target if the host can read the targets; otherwise its row's loss is NaN.
template <class P, class Device, class X, class Losses, class Maximum, class Sum, class Loss, class Count>
    requires(detail::kernel_device<Device> && detail::viewables<X, Losses, Maximum, Sum, Loss, Count>)
void cross_entropy(Device& device, const X& logits, const const_view<std::int32_t, 1>& targets, const Losses& losses,
                   const Maximum& maximum, const Sum& sum, const Loss& loss, const Count& count,
                   std::int32_t ignore_index = -100) {
    static_assert(detail::check_function<P, detail::element_in<X>>());
    static_assert(detail::check_ranks<2, X>() && detail::check_ranks<1, Losses, Maximum, Sum, Loss, Count>());
    detail::expect_statistics_apart(device, "cross_entropy", "logits", logits, losses, maximum, sum);
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
/// Fails with a message, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void cross_entropy(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: cross_entropy is called without a policy: ht::cross_entropy<ht::amp_bf16>(device, logits, "
                  "targets, losses, maximum, sum, loss, count)");
}

/// The gradient of cross_entropy with respect to the logits: (exp(logits - maximum) / sum - [is the target]) gradient /
/// count. maximum, sum and count are the forward pass's results. gradient: (1), that of the mean; or (rows), those of
/// the losses, with a count without data. dlogits: (rows, classes), overwritten; may be the logits if the types agree.
/// Throws as cross_entropy does.
template <class P, class Device, class X, class Maximum, class Sum, class Gradient, class Count, class D>
    requires(detail::kernel_device<Device> && detail::viewables<X, Maximum, Sum, Gradient, Count, D>)
void cross_entropy_gradients(Device& device, const X& logits, const const_view<std::int32_t, 1>& targets,
                             const Maximum& maximum, const Sum& sum, const Gradient& gradient, const Count& count,
                             const D& dlogits, std::int32_t ignore_index = -100) {
    using arguments = kernel::cross_entropy_backward<detail::element_in<X>, detail::element_in<D>>;
    static_assert(detail::check_function<P, detail::element_in<X>, detail::element_in<D>>());
    static_assert(detail::check_ranks<2, X, D>() && detail::check_ranks<1, Maximum, Sum, Gradient, Count>());
    detail::expect_apart_or_same(device, "cross_entropy backward", "logits", logits, "dlogits", dlogits);
    detail::expect_read_apart(device, "cross_entropy backward", maximum, sum, gradient, count, "dlogits", dlogits);
    kernel::cross_entropy<Device>::backward(device, arguments{.logits = as_view(logits),
                                                              .targets = targets,
                                                              .maximum = as_view(maximum),
                                                              .sum = as_view(sum),
                                                              .gradient = as_view(gradient),
                                                              .count = as_view(count),
                                                              .dlogits = as_view(dlogits),
                                                              .ignore_index = ignore_index});
}
/// Fails with a message, where compilers would only list candidates.
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
