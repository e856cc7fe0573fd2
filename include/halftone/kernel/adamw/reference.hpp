// SPDX-License-Identifier: MIT
/// \file
/// The definition of a step of AdamW, in double: algorithm 2 of Loshchilov and Hutter, "Decoupled weight decay
/// regularization", ICLR 2019, with the decay multiplied by the learning rate, as torch.optim.AdamW has it.
///
///     reference::adamw(w, g, m, v, {.beta1 = 0.9, .beta2 = 0.95}, lr, decay, t);      // t counts from 1
#pragma once

#include <cmath>

#include <halftone/kernel/adamw/adamw.hpp>
#include <halftone/kernel/gradient_norm/reference.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// Gradients are read with `factors`, those of a plain gradient by default.
template <class W, class G, class M>
void adamw(const view<W, 1>& weights, const view<G, 1>& gradients, const view<M, 1>& first, const view<M, 1>& second,
           const kernel::adamw_decays& d, double lr, double weight_decay, double t,
           const kernel::gradient_factors& factors = {}) {
    const double correction1 = 1 - std::pow(d.beta1, t), correction2 = 1 - std::pow(d.beta2, t);
    for (extent i = 0; i < weights.size(); ++i) {
        const double g = read_gradient(gradients(i), factors);
        const double m = d.beta1 * static_cast<double>(first(i)) + (1 - d.beta1) * g;
        const double v = d.beta2 * static_cast<double>(second(i)) + (1 - d.beta2) * g * g;
        const double w = static_cast<double>(weights(i)) * (1 - lr * weight_decay);
        weights(i) = static_cast<W>(w - lr * (m / correction1) / (std::sqrt(v / correction2) + d.epsilon));
        first(i) = static_cast<M>(m);
        second(i) = static_cast<M>(v);
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
