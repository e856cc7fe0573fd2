// SPDX-License-Identifier: MIT
/// \file
/// How far a step of AdamW with moments in 8 bits may be from one with the moments before they were rounded: the bound of
/// kernel/optimizer_step/eight_bit/eight_bit.hpp, for every device.
///
///     eight_bit_checks::steps_are_bounded(device, 1 << 20, 1);
#pragma once

#include <algorithm>
#include <limits>

#include "kernel/optimizer_step/eight_bit_checks.hpp"

namespace eight_bit_checks {

/// The numbers of the bound, computed from the maps of the definition.
struct rounding_bounds {
    double least_first, least_second;  ///< the smallest magnitudes
    double first_up;                   ///< a first moment becomes at most that many times larger, or least_first of its block's largest
    double second_down;                ///< a second moment becomes at least that part of itself
};

inline rounding_bounds bounds_of_maps() {
    const std::vector<double> with_sign = ht::reference::dynamic_map(true), without_sign = ht::reference::dynamic_map(false);
    rounding_bounds b{with_sign[128], without_sign[1], 2, 1};  // the middle of 0 and the least is doubled
    for (std::size_t code = 128; code < 255; ++code)
        b.first_up = std::max(b.first_up, 2 * with_sign[code + 1] / (with_sign[code] + with_sign[code + 1]));
    for (std::size_t code = 1; code < 255; ++code)
        b.second_down = std::min(b.second_down, 2 * without_sign[code] / (without_sign[code] + without_sign[code + 1]));
    return b;
}

/// One step of AdamW with lr 1 and no decay, of a parameter and moments that are floats; without a gradient.
template <class Device>
void move_without_gradient(Device& device, const kernel::adamw_rule& rule, int t, const guarded<float>& w, const guarded<float>& m,
                           const guarded<float>& v) {
    const guarded<float> none(std::vector<float>(static_cast<std::size_t>(w.size())), 1);
    const kernel::step_record record{.steps = t, .lr = 1};
    const kernel::gradient_factors plain;
    kernel::optimizer_step_arguments<kernel::adamw_rule, float, float, float, float> a{
        .master = w.view(), .gradient = none.const_view(), .rule = rule, .factors = &plain, .step = &record};
    a.moments[0] = m.view(), a.moments[1] = v.view();
    kernel::optimizer_step<Device>::template run<ht::rounding::nearest_even>(device, a);
}

/// Gradients of a step: each block has a range of magnitudes of its own, of up to 100 powers of two, and elements without a gradient, from
/// none to all but one in 200. Some are so small that their squares are 0 as floats.
inline void rare_gradients(support::random& data, const guarded<float>& g) {
    for (extent first = 0; first < g.size(); first += 256) {
        const double range = data.below(3) == 0 ? 100 : data.uniform(0, 40), top = data.uniform(-20, 10);
        const double share = data.below(3) == 0 ? 1 : data.below(2) == 0 ? 0.1 : 0.005;
        for (extent i = first; i < std::min(first + 256, g.size()); ++i) {
            const bool is_there = data.uniform(0, 1) < share;
            const double magnitude = std::exp2(top - data.uniform(0, range));
            g[i] = !is_there ? 0.0f : static_cast<float>(data.below(2) == 0 ? magnitude : -magnitude);
        }
    }
}

/// How often rounding broke the bound, by what it broke.
struct broken_bounds {
    int zeros = 0, seconds = 0, firsts = 0, ratios = 0, moves = 0;
};

/// The moments of one element before and behind rounding, in a block with these largest magnitudes. A float's rounding is u; the
/// subnormal numbers near 0 add 2^-149 to what was a product.
inline void count_broken(broken_bounds& broken, const rounding_bounds& b, double m, double v, double m_stored, double v_stored,
                         double m_max, double v_max) {
    constexpr double wide = 1 + 4 * support::u, tiny = 0x1p-149;
    broken.firsts += std::fabs(m_stored) <= std::max(b.first_up * std::fabs(m), b.least_first * m_max) * wide + tiny ? 0 : 1;
    broken.seconds += v_stored * wide + tiny >= b.second_down * v ? 0 : 1;
    if (v_max < 0x1p-104 || m_stored == 0) return;  // 2^-104 is the largest magnitude with whose least code a float is not subnormal
    const double ratio = v == 0 ? 0 : b.first_up / std::sqrt(b.second_down) * std::fabs(m) / std::sqrt(v);
    const double least = b.least_first / std::sqrt(b.least_second) * m_max / std::sqrt(v_max);
    broken.ratios += v_stored > 0 && std::fabs(m_stored) / std::sqrt(v_stored) <= std::max(ratio, least) * wide ? 0 : 1;
}

/// Steps of random blocks. Behind each of them every pair of moments is within the bound of the pair before it was rounded, and so is the
/// way that a step without a gradient takes from there.
template <class Device>
void steps_are_bounded(Device& device, extent n, std::uint64_t seed) {
    CAPTURE(seed);
    support::random data{seed};
    const rounding_bounds b = bounds_of_maps();
    CHECK(b.first_up == 2);
    CHECK(b.second_down > 0.534);
    CHECK(b.first_up / std::sqrt(b.second_down) < 2.74);
    CHECK(b.least_first / std::sqrt(b.least_second) < 0.00097);
    const kernel::adamw_rule rule{0.9, 0.999, 1e-8};
    const auto size = static_cast<std::size_t>(n);
    const slabs<float, float, float> s{std::vector<float>(size), std::vector<float>(size)};
    const guarded<float> exact[2] = {slabs<float, float, float>::zeros(256 * size), slabs<float, float, float>::zeros(256 * size)};
    const guarded<float> stored[2] = {slabs<float, float, float>::zeros(256 * size), slabs<float, float, float>::zeros(256 * size)};
    const kernel::gradient_factors plain;
    broken_bounds broken;
    double square = 0;
    int raised = 0;
    for (int t = 1; t <= 3; ++t) {
        const auto read = [&](int k, const guarded<float>& to) {
            const kernel::dynamic_map& map = k == 0 ? maps().with_sign : maps().without_sign;
            for (extent i = 0; i < n; ++i) to[i] = map.value(s.codes[k][i]) * s.absmax[k][i / 256];
        };
        for (int k = 0; k < 2; ++k) read(k, exact[k]);
        rare_gradients(data, s.gradient);
        const kernel::step_record record{.steps = t, .lr = 0.01};
        auto a = s.arguments(plain, record);
        a.step.rule = rule;
        kernel::optimizer_step_arguments<kernel::adamw_rule, float, float, float, float> floats = a.step;
        const guarded<float> other(std::vector<float>(size), 1);
        floats.master = other.view(), floats.copy = {}, floats.moments[0] = exact[0].view(), floats.moments[1] = exact[1].view();
        run(device, a);
        kernel::optimizer_step<Device>::template run<ht::rounding::nearest_even>(device, floats);
        for (int k = 0; k < 2; ++k) read(k, stored[k]);
        for (extent i = 0; i < n; ++i) {
            const auto in = [&](const guarded<float>& x) { return static_cast<double>(x[i]); };
            const bool is_zero = exact[0][i] == 0 && exact[1][i] == 0;
            broken.zeros += (s.codes[1][i] == 0) == is_zero ? 0 : 1;
            raised += s.codes[1][i] == 1 && stored[1][i] > exact[1][i] ? 1 : 0;
            count_broken(broken, b, in(exact[0]), in(exact[1]), in(stored[0]), in(stored[1]), static_cast<double>(s.absmax[0][i / 256]),
                         static_cast<double>(s.absmax[1][i / 256]));
        }
        // The next step without a gradient, by the kernel itself.
        const guarded<float> moved(std::vector<float>(size), 1);
        move_without_gradient(device, rule, t + 1, moved, stored[0], stored[1]);
        const double correction = (1 - std::pow(0.9, t + 1)) / std::sqrt(1 - std::pow(0.999, t + 1));
        // By Cauchy's inequality the square of first / root of second is at most 0.81 / 0.999 times what it was, plus 0.01 / 0.001 for the
        // gradient; rounding multiplies it.
        square = (square * 0.81 / 0.999 + 0.01 / 0.001) * b.first_up * b.first_up / b.second_down;
        const double most = std::sqrt(square * 0.81 / 0.999) / correction * (1 + 16 * support::u);
        for (extent i = 0; i < n; ++i) broken.moves += std::fabs(static_cast<double>(moved[i])) <= most ? 0 : 1;
    }
    CHECK(broken.zeros == 0);
    CHECK(broken.seconds == 0);
    CHECK(broken.firsts == 0);
    CHECK(broken.ratios == 0);
    CHECK(broken.moves == 0);
    CHECK(raised > n / 100);
    CHECK(s.intact());
}

/// A weight whose gradient is 4e-4 in two steps and 0 afterwards, beside one whose gradient is 1: in AdamW it moves at most by lr times
/// the bound of a step in each.
template <class Device>
void rare_gradients_stay_bounded(Device& device) {
    const kernel::gradient_factors plain;
    for (const double size : {4e-4, 1e-30, -1e-30}) {
        CAPTURE(size);
        const slabs<float, float, float> s{std::vector<float>(2, 1.0f), std::vector<float>(2)};
        std::vector<double> w(2, 1.0), m(2), v(2), g(2);
        for (int t = 1; t <= 20; ++t) {
            g[0] = 1, g[1] = t <= 2 ? size : 0;
            s.gradient[0] = 1, s.gradient[1] = static_cast<float>(g[1]);
            const kernel::step_record record{.steps = t, .lr = 3e-4};
            auto a = s.arguments(plain, record);
            a.step.rule = {0.9, 0.999, 1e-8}, a.step.rates.weight_decay = 0;
            const float before = s.master[1];
            run(device, a);
            CHECK(std::fabs(static_cast<double>(s.master[1]) - static_cast<double>(before)) <= 1.1 * 3e-4);
        }
        CHECK(s.codes[1][1] > 0);
        CHECK(std::fabs(static_cast<double>(s.master[1]) - 1) < 20 * 3e-4);
    }
}

/// A linear layer of 256 features and 16 results, of which 240 features are rare and small: trained by steps with moments in 8 bits and in
/// floats, on the same samples. Returns each layer's weights and, for the last quarter of the steps, the mean loss.
struct trained_layer {
    std::vector<float> weights;
    double loss = 0;

    double largest() const {
        double most = 0;
        for (const float w : weights) most = std::max(most, std::fabs(static_cast<double>(w)));
        return most;
    }
};

template <class Device>
trained_layer train_with_rare_features(Device& device, bool in_8_bits, int steps) {
    constexpr int features = 256, results = 16, common = 16;
    support::random data{11};
    std::vector<double> truth(features * results);
    for (double& w : truth) w = 0.1 * data.normal();
    const auto size = truth.size();
    const slabs<float, float, float> s{std::vector<float>(size), std::vector<float>(size), true};
    const guarded<float> m(std::vector<float>(size), 0), v(std::vector<float>(size), 0);
    const kernel::gradient_factors plain;
    trained_layer trained;
    for (int t = 1; t <= steps; ++t) {
        double x[features], error[results] = {};
        for (int f = 0; f < features; ++f) x[f] = f % common == 0 ? data.normal() : data.below(100) == 0 ? 0.01 * data.normal() : 0;
        for (int r = 0; r < results; ++r) {
            for (int f = 0; f < features; ++f) {
                const auto at = static_cast<std::size_t>(r * features + f);
                error[r] += x[f] * (static_cast<double>(s.master[r * features + f]) - truth[at]);
            }
            if (t > steps * 3 / 4) trained.loss += error[r] * error[r] / (results * (steps - steps * 3 / 4));
            for (int f = 0; f < features; ++f) s.gradient[r * features + f] = static_cast<float>(error[r] * x[f]);
        }
        const kernel::step_record record{.steps = t, .lr = 1e-3};
        auto a = s.arguments(plain, record);
        a.step.rule = {0.9, 0.999, 1e-8}, a.step.rates.weight_decay = 0;
        if (in_8_bits) {
            run(device, a);
        } else {
            kernel::optimizer_step_arguments<kernel::adamw_rule, float, float, float, float> floats = a.step;
            floats.moments[0] = m.view(), floats.moments[1] = v.view();
            kernel::optimizer_step<Device>::template run<ht::rounding::nearest_even>(device, floats);
        }
    }
    for (extent i = 0; i < s.master.size(); ++i) trained.weights.push_back(s.master[i]);
    return trained;
}

}  // namespace eight_bit_checks
