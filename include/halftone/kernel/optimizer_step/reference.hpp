// SPDX-License-Identifier: MIT
/// \file
/// The definitions of optimizers' steps, in double. Gradients are multiplied by `factors`, by default without unscaling
/// and clipping; t counts steps from 1.
///
///     reference::adamw(w, g, m, v, {.beta1 = 0.9, .beta2 = 0.95}, lr, decay, t);
///     reference::lion(w, g, m, {.beta1 = 0.95, .beta2 = 0.98}, lr, decay);
///     reference::sgd(w, g, m, {.momentum = 0.9, .kind = kernel::momentum_kind::nesterov}, lr, decay, t);
#pragma once

#include <cmath>

#include <halftone/kernel/gradient_norm/reference.hpp>
#include <halftone/kernel/optimizer_step/rule/all.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// Algorithm 2 of Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, with the decay multiplied
/// by the learning rate, as in torch.optim.AdamW.
template <class W, class G, class M>
void adamw(const view<W, 1>& weights, const view<G, 1>& gradients, const view<M, 1>& first, const view<M, 1>& second,
           const kernel::adamw_rule& r, double lr, double weight_decay, double t,
           const kernel::gradient_factors& factors = {}) {
    const double correction1 = 1 - std::pow(r.beta1, t), correction2 = 1 - std::pow(r.beta2, t);
    for (extent i = 0; i < weights.size(); ++i) {
        const double g = read_gradient(gradients(i), factors);
        const double m = r.beta1 * static_cast<double>(first(i)) + (1 - r.beta1) * g;
        const double v = r.beta2 * static_cast<double>(second(i)) + (1 - r.beta2) * g * g;
        const double w = static_cast<double>(weights(i)) * (1 - lr * weight_decay);
        weights(i) = static_cast<W>(w - lr * (m / correction1) / (std::sqrt(v / correction2) + r.epsilon));
        first(i) = static_cast<M>(m);
        second(i) = static_cast<M>(v);
    }
}

/// Algorithm 2 of Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023.
template <class W, class G, class M>
void lion(const view<W, 1>& weights, const view<G, 1>& gradients, const view<M, 1>& momentum, const kernel::lion_rule& r,
          double lr, double weight_decay, const kernel::gradient_factors& factors = {}) {
    for (extent i = 0; i < weights.size(); ++i) {
        const double g = read_gradient(gradients(i), factors), m = static_cast<double>(momentum(i));
        const double direction = r.beta1 * m + (1 - r.beta1) * g;
        const double sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
        weights(i) = static_cast<W>(static_cast<double>(weights(i)) * (1 - lr * weight_decay) - lr * sign);
        momentum(i) = static_cast<M>(r.beta2 * m + (1 - r.beta2) * g);
    }
}

/// Stochastic gradient descent, as torch.optim.SGD.
template <class W, class G, class M>
void sgd(const view<W, 1>& weights, const view<G, 1>& gradients, const view<M, 1>& momentum, const kernel::sgd_rule& r,
         double lr, double weight_decay, double t, const kernel::gradient_factors& factors = {}) {
    for (extent i = 0; i < weights.size(); ++i) {
        const double w = static_cast<double>(weights(i));
        double d = read_gradient(gradients(i), factors) + weight_decay * w;
        if (r.momentum != 0) {
            const double m = t == 1 ? d : r.momentum * static_cast<double>(momentum(i)) + (1 - r.dampening) * d;
            momentum(i) = static_cast<M>(m);
            d = r.kind == kernel::momentum_kind::nesterov ? d + r.momentum * m : m;
        }
        weights(i) = static_cast<W>(w - lr * d);
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
