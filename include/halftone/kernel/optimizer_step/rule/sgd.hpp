// SPDX-License-Identifier: MIT
/// \file
/// The rule of stochastic gradient descent with momentum, as torch.optim.SGD: the first step sets the momentum to the
/// gradient. optimizer_step.hpp has the contract, updates.simd.hpp the update of one parameter.
///
///     kernel::sgd_rule rule{.momentum = 0.9, .kind = kernel::momentum_kind::nesterov};
///
/// Memory: 22 bytes per parameter with fp32 gradient, master and momentum and a 16-bit copy; 14 without momentum.
#pragma once

#include <cmath>

#include <halftone/kernel/common/update/records.hpp>
#include <halftone/policy/roles.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Plain momentum, or Nesterov's (Sutskever et al. 2013), which adds the new momentum to the gradient.
enum class momentum_kind { plain, nesterov };

struct sgd_rule {
    static constexpr const char* name = "sgd";
    static constexpr int moments = 1;
    static constexpr const char* moment_names[moments] = {"momentum"};
    static constexpr bool always_keeps = false;

    double momentum = 0;  ///< 0: no momentum is stored
    double dampening = 0;
    momentum_kind kind = momentum_kind::plain;

    constexpr bool keeps() const { return momentum != 0; }
    /// A momentum can grow to 1 / (1 - momentum) times the largest gradient; that must be finite, with half of the
    /// range kept free for decay and rounding errors. From 0.999 on the bound is that of 0.999. Without momentum
    /// nothing is stored, and every finite gradient is accepted.
    float largest_gradient() const {
        constexpr double largest = static_cast<double>(gradient_factors::no_limit);
        if (!keeps()) return gradient_factors::no_limit;
        const double kept = momentum < 0.999 ? 1 - momentum : 0.001, weight = std::fabs(1 - dampening);
        return static_cast<float>(largest / 2 * kept / (weight > 1 ? weight : 1));
    }

    template <class Real>
    struct scalars_in {
        Real decay, momentum, gradient_weight, lr;
        Real nesterov;  // the coefficient of Nesterov's momentum, or 0
    };
    using scalars = scalars_in<float>;
    template <class Real = float>
    HALFTONE_HD scalars_in<Real> scalars_of(const group_rates& rates, const step_record& step) const {
        // In the first step the old momentum is multiplied by zero; it was initialised with zeros.
        const bool first = step.steps <= 1;
        return {static_cast<Real>(rates.weight_decay), static_cast<Real>(first ? 0 : momentum),
                static_cast<Real>(first ? 1 : 1 - dampening), static_cast<Real>(rates.lr(step)),
                kind == momentum_kind::nesterov ? static_cast<Real>(momentum) : Real{0}};
    }

    template <class State>
    static consteval bool check_state() {
        static_assert(
            !narrow_range<State>,
            "halftone: sgd: momentum adds up gradients and overflows in fp16, or a type of as short a range (role "
            "`state`): take bfloat16 or float, ht::with_state<P, ht::bfloat16>");
        return true;
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
