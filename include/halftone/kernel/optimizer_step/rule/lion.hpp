// SPDX-License-Identifier: MIT
/// \file
/// The rule of Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2): a parameter
/// changes by the learning rate times the sign of a mean of gradients. optimizer_step.hpp has the contract,
/// updates.simd.hpp the update of one parameter.
///
///     kernel::lion_rule rule{.beta1 = 0.95, .beta2 = 0.98};                  // one moment: the mean of gradients
///
/// Memory: 22 bytes per parameter with fp32 gradient, master and moment and a 16-bit copy.
#pragma once

#include <halftone/kernel/common/update/records.hpp>
#include <halftone/policy/roles.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

struct lion_rule {
    static constexpr const char* name = "lion";
    static constexpr int moments = 1;
    static constexpr const char* moment_names[moments] = {"momentum"};
    static constexpr bool always_keeps = true;

    double beta1 = 0.9;   ///< coefficient of the mean whose sign is the update
    double beta2 = 0.99;  ///< coefficient of the mean that is stored

    static constexpr bool keeps() { return true; }
    /// A mean is at most the largest gradient; half of the range is kept free for rounding errors.
    static constexpr float largest_gradient() { return gradient_factors::no_limit / 2; }

    template <class Real>
    struct scalars_in {
        Real sign_decay, sign_weight, mean_decay, mean_weight, lr, decay;
    };
    using scalars = scalars_in<float>;
    template <class Real = float>
    HALFTONE_HD scalars_in<Real> scalars_of(const group_rates& rates, const step_record& step) const {
        const double lr = rates.lr(step);
        return {static_cast<Real>(beta1), static_cast<Real>(1 - beta1),
                static_cast<Real>(beta2), static_cast<Real>(1 - beta2),
                static_cast<Real>(lr),    static_cast<Real>(1 - lr * rates.weight_decay)};
    }

    template <class State>
    static consteval bool check_state() {
        static_assert(!narrow_range<State>,
                      "halftone: lion: a mean of gradients overflows and underflows in fp16, or a type of as "
                      "short a range (role `state`): take bfloat16 or float, ht::with_state<P, ht::bfloat16>");
        return true;
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
