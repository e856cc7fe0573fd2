// SPDX-License-Identifier: MIT
/// \file
/// The definition of a step of stochastic gradient descent, in double, as torch.optim.SGD has it.
///
///     reference::sgd(w, g, m, {.momentum = 0.9, .kind = kernel::momentum_kind::nesterov}, lr, decay, t);
#pragma once

#include <halftone/kernel/gradient_norm/reference.hpp>
#include <halftone/kernel/sgd/sgd.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// Gradients are read with `factors`, those of a plain gradient by default.
template <class W, class G, class M>
void sgd(const view<W, 1>& weights, const view<G, 1>& gradients, const view<M, 1>& momentum,
         const kernel::sgd_coefficients& c, double lr, double weight_decay, double t,
         const kernel::gradient_factors& factors = {}) {
    for (extent i = 0; i < weights.size(); ++i) {
        const double w = static_cast<double>(weights(i));
        double d = read_gradient(gradients(i), factors) + weight_decay * w;
        if (c.momentum != 0) {
            const double m = t == 1 ? d : c.momentum * static_cast<double>(momentum(i)) + (1 - c.dampening) * d;
            momentum(i) = static_cast<M>(m);
            d = c.kind == kernel::momentum_kind::nesterov ? d + c.momentum * m : m;
        }
        weights(i) = static_cast<W>(w - lr * d);
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
