// SPDX-License-Identifier: MIT
/// \file
/// AdEMAMix (Pagliardini et al. 2024) as an optimizer of a program's own, with three moments: without the schedules of alpha
/// and beta3 that the paper has for long runs.
#pragma once

#include <cmath>

#include <halftone/optim/own_optimizer.hpp>

namespace own {

namespace ht = halftone;

struct ademamix_rule {
    static constexpr const char* name = "ademamix";
    static constexpr int moments = 3;
    static constexpr const char* moment_names[moments] = {"fast", "slow", "second"};
    static constexpr bool always_keeps = true;

    double beta1, beta2, beta3, alpha, epsilon;

    static constexpr bool keeps() { return true; }
    static constexpr float largest_gradient() { return ht::kernel::largest_with_square; }

    struct scalars {
        float fast_weight, slow_weight, second_decay, second_weight, root_scale, epsilon, fast_scale, alpha, lr, decay;
    };
    HALFTONE_HD scalars scalars_of(const ht::kernel::group_rates& rates, const ht::kernel::step_record& step) const {
        const double lr = rates.lr(step), t = static_cast<double>(step.steps);
        return {static_cast<float>(1 - beta1),
                static_cast<float>(1 - beta3),
                static_cast<float>(beta2),
                static_cast<float>(1 - beta2),
                static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, t))),
                static_cast<float>(epsilon),
                static_cast<float>(1 / (1 - std::pow(beta1, t))),
                static_cast<float>(alpha),
                static_cast<float>(lr),
                static_cast<float>(1 - lr * rates.weight_decay)};
    }
    template <class State>
    static consteval bool check_state() {
        return true;
    }
};
HALFTONE_UPDATE(ademamix_rule,
    V& fast = moments[0];
    V& slow = moments[1];
    V& second = moments[2];
    fast = fma(g - fast, splat(s.fast_weight), fast);
    slow = fma(g - slow, splat(s.slow_weight), slow);
    second = fma(g * s.second_weight, g, second * s.second_decay);
    const V denominator = fma(sqrt(second), splat(s.root_scale), splat(s.epsilon));
    return fma(w, splat(s.decay), fma(slow, splat(s.alpha), fast * s.fast_scale) * -s.lr / denominator);)

struct ademamix_options {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, beta3 = 0.9999, alpha = 5, epsilon = 1e-8, weight_decay = 0;
    std::uint64_t seed = 0;
    double ema_decay = 0;

    static constexpr const char* name = ademamix_rule::name;
    template <class Device, class Model>
    using optimizer = ht::own_optimizer<Device, Model, ademamix_options>;
    ademamix_rule rule() const { return {beta1, beta2, beta3, alpha, epsilon}; }
};

/// One parameter's AdEMAMix in double: the definition.
struct ademamix_definition {
    double w = 0, fast = 0, slow = 0, second = 0;
    void step(double g, const ademamix_options& o, int t) {
        fast = o.beta1 * fast + (1 - o.beta1) * g;
        slow = o.beta3 * slow + (1 - o.beta3) * g;
        second = o.beta2 * second + (1 - o.beta2) * g * g;
        const double direction = fast / (1 - std::pow(o.beta1, t)) + o.alpha * slow;
        const double root = std::sqrt(second / (1 - std::pow(o.beta2, t)));
        w -= o.lr * (direction / (root + o.epsilon) + o.weight_decay * w);
    }
};

}  // namespace own
