// SPDX-License-Identifier: MIT
/// \file
/// The rule of AdamW (Loshchilov and Hutter 2019), as torch.optim.AdamW: optimizer_step.hpp has the contract,
/// updates.simd.hpp the update of one parameter.
///
///     kernel::adamw_rule rule{.beta1 = 0.9, .beta2 = 0.95};        // moments: the means of gradients and of their squares
///
/// Memory: 30 bytes per parameter with fp32 gradient, master and moments and a 16-bit copy.
#pragma once

#include <cmath>

#include <halftone/kernel/common/update/records.hpp>
#include <halftone/policy/roles.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

struct adamw_rule {
    static constexpr const char* name = "adamw";
    static constexpr int moments = 2;
    static constexpr const char* moment_names[moments] = {"first", "second"};
    static constexpr bool always_keeps = true;

    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;

    static constexpr bool keeps() { return true; }
    /// The second moment is a mean of squares of gradients, so these must be finite.
    static constexpr float largest_gradient() { return largest_with_square; }

    template <class Real>
    struct scalars_in {
        Real first_weight, second_decay, second_weight, root_scale, epsilon, step_size, decay;
    };
    using scalars = scalars_in<float>;
    template <class Real = float>
    HALFTONE_HD scalars_in<Real> scalars_of(const group_rates& rates, const step_record& step) const {
        const double lr = rates.lr(step), t = static_cast<double>(step.steps);
        const double correction1 = 1 - std::pow(beta1, t), correction2 = 1 - std::pow(beta2, t);
        return {static_cast<Real>(1 - beta1),
                static_cast<Real>(beta2),
                static_cast<Real>(1 - beta2),
                static_cast<Real>(1 / std::sqrt(correction2)),
                static_cast<Real>(epsilon),
                static_cast<Real>(lr / correction1),
                static_cast<Real>(1 - lr * rates.weight_decay)};
    }

    template <class State>
    static consteval bool check_state() {
        static_assert(
            !narrow_range<State>,
            "halftone: adamw: the squares of gradients underflow in fp16, or a type of as short a range (role `state`): "
            "take bfloat16 or float, ht::with_state<P, ht::bfloat16>");
        return true;
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
