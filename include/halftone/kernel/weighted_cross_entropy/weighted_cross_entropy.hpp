// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy with label smoothing, class weights and a z-loss. With p the softmax of a row's logits, t its target,
/// w the classes' weights (1 where there are none), e the label smoothing and z the factor of the z-loss, a row's loss
/// is
///
///     -(1 - e) w[t] log p[t] - e / classes (sum over j of w[j] log p[j]) + z w[t] logsumexp^2
///
/// and the mean divides by the sum of w[t] over the rows that count: PyTorch's cross_entropy, and PaLM's z-loss
/// (Chowdhery et al. 2022, section 5), which keeps logits near where exp does not overflow.
///
///     const kernel::cross_entropy_terms<float> terms{.label_smoothing = 0.1f};
///     ht::weighted_cross_entropy<ht::amp_bf16>(device, logits, targets, terms, losses, maximum, sum, row_weights);
///     ht::weighted_cross_entropy_gradients<ht::amp_bf16>(device, logits, targets, terms, maximum, sum, gradient, count, dx);
///
/// Numeric contract: losses, maximum and sum of a row as kernel/cross_entropy has them; what is added to them is in
/// float (of doubles in double). The sum over classes is that of w[j] (maximum - x[j]), whose terms are none of them
/// negative, so that nothing cancels. A gradient is rounded once. Rows whose target is ignore_index have loss 0 and
/// gradient 0.
#pragma once

#include <cmath>

#include <halftone/kernel/cross_entropy/cross_entropy.hpp>
#include <halftone/kernel/sum/sum.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// What there is beside a plain cross-entropy. S: float, or double with doubles.
template <class S>
struct cross_entropy_terms {
    S label_smoothing = 0;          ///< 0 to 1
    S z_loss = 0;                   ///< the factor of logsumexp^2
    const_view<S, 1> weight{};      ///< (classes), or none: 1 for each
    const_view<S, 1> weight_sum{};  ///< (1), the sum of weight; none where there are no weights
};

/// The coefficients of one row's loss, of weight w and with this logsumexp; `all` is the sum of all weights.
template <class S>
struct weighted_row {
    S of_target;  ///< of -log p[target]
    S of_each;    ///< of -w[j] log p[j]
    S of_sum;     ///< of p, beside of_target: what smoothing and z-loss add to the gradient
    S extra;      ///< what the z-loss adds to the loss

    HALFTONE_HD HALFTONE_INLINE static weighted_row of(S label_smoothing, S z_loss, S w, S all, extent classes, S log_sum_exp) {
        const S each = label_smoothing / static_cast<S>(classes), z = z_loss * w;
        return {(S(1) - label_smoothing) * w, each, each * all + S(2) * z * log_sum_exp, z * log_sum_exp * log_sum_exp};
    }
};

/// forward_rows, backward of one device.
///
/// forward_rows(device, arguments, terms, row_weights): losses, maximum and sum; `loss` and `count` of the arguments
/// are not looked at, and targets are trusted. row_weights (rows): w[t] of rows that count, else 0; without data where
/// nobody wants them. backward(device, arguments, terms): `count` is what gradients are divided by, or none.
template <class Device>
struct weighted_cross_entropy;

/// Throws shape_error where the terms do not fit so many classes.
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

/// loss = the sum of all losses, over `count` where that is there. losses: (rows), loss and count: (1).
template <class Device, class S>
void total_loss(Device& device, const const_view<S, 1>& losses, const view<S, 1>& loss, const view<S, 1>& count) {
    sum<Device>::run(device, symbolic::argument<0>{}, make_pack(losses), 1.0, view<S, 0>(loss.data(), {}));
    if (count.data() != nullptr) device.run(divide_by<S>{loss.data(), count.data()});
}

}  // namespace kernel

/// The loss of each row with the terms of this file's head: losses (rows). maximum and sum are what the gradients need,
/// as of ht::cross_entropy; row_weights: (rows), the weight of each row's target, 0 where it does not count, or a view
/// without data. The mean is the sum of the losses over that of row_weights. Throws as ht::cross_entropy does.
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
    kernel::cross_entropy<Device>::check_targets(device, a.logits.extent_of(1), targets, ignore_index);
    kernel::weighted_cross_entropy<Device>::forward_rows(device, a, terms, as_view(row_weights));
}

/// The gradient of weighted_cross_entropy by the logits, times gradient / count; arguments as of
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
