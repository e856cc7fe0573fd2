// SPDX-License-Identifier: MIT
/// \file
/// The two elementwise passes of Muon (Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks").
/// Between them kernel/optimizer_step/muon/orthogonal.hpp orthogonalises the matrix.
///
///     kernel::muon_momentum_rule{.momentum = 0.95}      // writes the direction to master; one moment: the momentum
///     kernel::muon_rule{.ratio = 1.5}                   // gradient: the orthogonal direction
///
/// optimizer_step.hpp has the contract, updates.simd.hpp the update of one parameter.
#pragma once

#include <halftone/kernel/common/update/records.hpp>
#include <halftone/policy/roles.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// m becomes m + (1 - momentum) (g - m); the direction is m, or with Nesterov's momentum g + momentum (m - g).
struct muon_momentum_rule {
    static constexpr const char* name = "muon";
    static constexpr int moments = 1;
    static constexpr const char* moment_names[moments] = {"momentum"};
    static constexpr bool always_keeps = true;

    double momentum = 0.95;
    bool nesterov = true;

    static constexpr bool keeps() { return true; }
    /// The largest magnitude of a gradient with which a step can be taken: AdamW's, which updates the parameters that
    /// are not hidden matrices.
    static constexpr float largest_gradient() { return largest_with_square; }

    struct scalars {
        float gradient_weight;
        float correction;  // the coefficient of g - m in the direction; 0 without Nesterov's momentum
    };
    HALFTONE_HD scalars scalars_of(const group_rates&, const step_record&) const {
        const float weight = static_cast<float>(1 - momentum);
        return {weight, nesterov ? weight : 0.0f};
    }

    template <class State>
    static consteval bool check_state() {
        static_assert(!narrow_range<State>,
                      "halftone: muon: a mean of gradients overflows and underflows in fp16, or a type of as "
                      "short a range (role `state`): take bfloat16 or float, ht::with_state<P, ht::bfloat16>");
        return true;
    }
};

/// w becomes w (1 - lr weight_decay) - lr ratio g.
struct muon_rule {
    static constexpr const char* name = "muon";
    static constexpr int moments = 1;  // which is not stored
    static constexpr const char* moment_names[moments] = {"moment"};
    static constexpr bool always_keeps = false;

    double ratio = 1;  ///< a factor of the learning rate that depends on the matrix's shape

    static constexpr bool keeps() { return false; }
    static constexpr float largest_gradient() { return gradient_factors::no_limit; }

    template <class Real>
    struct scalars_in {
        Real decay, move;
    };
    using scalars = scalars_in<float>;
    template <class Real = float>
    HALFTONE_HD scalars_in<Real> scalars_of(const group_rates& rates, const step_record& step) const {
        const double lr = rates.lr(step);
        return {static_cast<Real>(1 - lr * rates.weight_decay), static_cast<Real>(-lr * ratio)};
    }

    template <class State>
    static consteval bool check_state() {
        return true;
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
