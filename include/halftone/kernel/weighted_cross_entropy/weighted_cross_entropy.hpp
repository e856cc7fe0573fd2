// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy with label smoothing, class weights and a z-loss. With p the softmax of a row's logits, t its target,
/// w the class weights (1 if there are none), e the label smoothing and z the factor of the z-loss, a row's loss is
///
///     -(1 - e) w[t] log p[t] - e / classes (sum over j of w[j] log p[j]) + z w[t] logsumexp^2
/// and the mean divides by the sum of w[t] over the rows that are not ignored: PyTorch's cross_entropy, and PaLM's z-loss
/// (Chowdhery et al. 2022, section 5), which keeps logits in the range in which exp does not overflow.
///
///     const kernel::cross_entropy_terms<float> terms{.label_smoothing = 0.1f};
///     ht::weighted_cross_entropy<ht::amp_bf16>(device, logits, targets, terms, losses, maximum, sum, row_weights);
///     ht::weighted_cross_entropy_gradients<ht::amp_bf16>(device, logits, targets, terms, maximum, sum, gradient, count, dx);
/// Numeric contract: losses, maximum and sum of a row as in kernel/cross_entropy; the additional terms are computed in
/// float (for doubles in double). The sum over classes is computed as that of w[j] (maximum - x[j]), whose terms are
/// not negative, so that nothing cancels. A gradient is rounded once. Rows whose target is ignore_index have loss 0 and
/// gradient 0.
#pragma once

#include <cmath>

#include <halftone/kernel/cross_entropy/cross_entropy.hpp>
#include <halftone/kernel/sum/sum.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The additional terms of a cross-entropy. S: float, or double for doubles.
template <class S>
struct cross_entropy_terms {
    S label_smoothing = 0;          ///< 0 to 1
    S z_loss = 0;                   ///< the factor of logsumexp^2
    const_view<S, 1> weight{};      ///< (classes); without data: 1 for each class
    const_view<S, 1> weight_sum{};  ///< (1), the sum of `weight`; without data if there are no weights
};

/// The coefficients in the loss of one row, whose target has weight w and whose logsumexp is given; `all` is the sum of
/// all weights.
template <class S>
struct weighted_row {
    S of_target;  ///< of -log p[target]
    S of_each;    ///< of -w[j] log p[j]
    S of_sum;     ///< of p, in addition to of_target: the contribution of smoothing and z-loss to the gradient
    S extra;      ///< the contribution of the z-loss to the loss

    HALFTONE_HD HALFTONE_INLINE static weighted_row of(S label_smoothing, S z_loss, S w, S all, extent classes, S log_sum_exp) {
        const S each = label_smoothing / static_cast<S>(classes), z = z_loss * w;
        return {(S(1) - label_smoothing) * w, each, each * all + S(2) * z * log_sum_exp, z * log_sum_exp * log_sum_exp};
    }
};

/// gradient / count. A gradient of 0 is 0 also over a count of 0, that of rows of which no class has a weight: so is the
/// gradient of a micro-batch of which nothing counts (autodiff/engine/share.hpp).
template <class S>
HALFTONE_HD HALFTONE_INLINE S over_count(S gradient, S count) {
    return gradient == S(0) ? S(0) : gradient / count;
}

/// Specialised for each device: forward_rows and backward.
///
/// forward_rows(device, arguments, terms, row_weights): computes losses, maximum and sum; `loss` and `count` of the
/// arguments are not used, and targets are not checked. row_weights (rows): w[t] of the row, 0 if it is ignored;
/// without data if not needed. backward(device, arguments, terms): gradients are divided by `count`, if it has data
/// (over_count).
template <class Device>
struct weighted_cross_entropy;

/// Throws shape_error if the terms do not fit the number of classes.
template <class S>
void check(const cross_entropy_terms<S>& a, extent classes) {
    expect_optional("cross_entropy", "weight", a.weight, {classes});
    expect_optional("cross_entropy", "weight_sum", a.weight_sum, {1});
}

/// *value /= *divisor, in a device's memory.
template <class S>
struct divide_by {
    S* value;
    const S* divisor;
    HALFTONE_HD void operator()() const { *value /= *divisor; }
};

/// loss = the sum of all losses, divided by `count` if it has data. losses: (rows), loss and count: (1).
template <class Device, class S>
void total_loss(Device& device, const const_view<S, 1>& losses, const view<S, 1>& loss, const view<S, 1>& count) {
    sum<Device>::run(device, symbolic::argument<0>{}, make_pack(losses), 1.0, view<S, 0>(loss.data(), {}));
    if (count.data() != nullptr) device.run(divide_by<S>{loss.data(), count.data()});
}

}  // namespace kernel

/// The loss of each row, with the formula at the top of this file: losses (rows). The gradients need maximum and sum,
/// as for ht::cross_entropy. row_weights: (rows), the weight of each row's target, 0 if the row is ignored; or a view
/// without data. The mean is the sum of the losses divided by the sum of row_weights. Throws as ht::cross_entropy does.
template <class P, class Device, class X, class S, class Losses, class Maximum, class Sum, class Weights>
    requires(detail::kernel_device<Device> && detail::viewables<X, Losses, Maximum, Sum, Weights>)
void weighted_cross_entropy(Device& device, const X& logits, const const_view<std::int32_t, 1>& targets,
                            const kernel::cross_entropy_terms<S>& terms, const Losses& losses, const Maximum& maximum,
                            const Sum& sum, const Weights& row_weights, std::int32_t ignore_index = -100) {
    static_assert(detail::check_function<P, detail::element_in<X>>());
    static_assert(detail::check_ranks<2, X>() && detail::check_ranks<1, Losses, Maximum, Sum, Weights>());
    const kernel::cross_entropy_forward<detail::element_in<X>> a{.logits = as_view(logits),
                                                                 .targets = targets,
                                                                 .losses = as_view(losses),
                                                                 .maximum = as_view(maximum),
                                                                 .sum = as_view(sum),
                                                                 .ignore_index = ignore_index};
    const char* const name = "weighted_cross_entropy";
    detail::expect_statistics_apart(device, name, "logits", logits, losses, maximum, sum);
    detail::expect_statistics_apart(device, name, "row_weights", row_weights, losses, maximum, sum);
    detail::expect_statistics_apart(device, name, "weight", terms.weight, losses, maximum, sum);
    detail::expect_apart(device, name, "logits", logits, "row_weights", row_weights);
    detail::expect_apart(device, name, "weight", terms.weight, "row_weights", row_weights);
    kernel::cross_entropy<Device>::check_targets(device, a.logits.extent_of(1), targets, ignore_index);
    kernel::weighted_cross_entropy<Device>::forward_rows(device, a, terms, as_view(row_weights));
}

/// The gradient of weighted_cross_entropy with respect to the logits, times gradient / count; arguments as for
/// ht::cross_entropy_gradients.
template <class P, class Device, class X, class S, class Maximum, class Sum, class Gradient, class Count, class D>
    requires(detail::kernel_device<Device> && detail::viewables<X, Maximum, Sum, Gradient, Count, D>)
void weighted_cross_entropy_gradients(Device& device, const X& logits, const const_view<std::int32_t, 1>& targets,
                                      const kernel::cross_entropy_terms<S>& terms, const Maximum& maximum, const Sum& sum,
                                      const Gradient& gradient, const Count& count, const D& dlogits,
                                      std::int32_t ignore_index = -100) {
    using arguments = kernel::cross_entropy_backward<detail::element_in<X>, detail::element_in<D>>;
    static_assert(detail::check_function<P, detail::element_in<X>, detail::element_in<D>>());
    static_assert(detail::check_ranks<2, X, D>() && detail::check_ranks<1, Maximum, Sum, Gradient, Count>());
    const char* const name = "weighted_cross_entropy backward";
    detail::expect_apart_or_same(device, name, "logits", logits, "dlogits", dlogits);
    detail::expect_read_apart(device, name, maximum, sum, gradient, count, "dlogits", dlogits);
    detail::expect_apart(device, name, "weight", terms.weight, "dlogits", dlogits);
    kernel::weighted_cross_entropy<Device>::backward(device,
                                                     arguments{.logits = as_view(logits),
                                                               .targets = targets,
                                                               .maximum = as_view(maximum),
                                                               .sum = as_view(sum),
                                                               .gradient = as_view(gradient),
                                                               .count = as_view(count),
                                                               .dlogits = as_view(dlogits),
                                                               .ignore_index = ignore_index},
                                                     terms);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
