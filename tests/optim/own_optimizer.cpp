// SPDX-License-Identifier: MIT
/// \file
/// An optimizer of a rule outside of the library, with three moments: its definition over many steps on every instruction set,
/// groups, narrow moments; the update for GPUs' threads.
#include <doctest/doctest.h>

#include "optim/ademamix.hpp"
#include "optim/small_model.hpp"
#include "support/each_set.hpp"

namespace optim_own_optimizer_tests {

namespace ht = halftone;

/// Gradients that are multiples of 1/256, of either sign.
float gradient_at(std::size_t entry, std::size_t i, int t) {
    return static_cast<float>(static_cast<int>((i * 7919 + entry * 31 + static_cast<std::size_t>(t) * 104729) % 257) - 128) / 256;
}

/// AdEMAMix of one parameter in double, with a bound of the error that float arithmetic may have added: the errors of earlier
/// steps and the roundings of this one, to first order, as tracked_adamw.hpp has them for AdamW.
struct tracked {
    own::ademamix_definition p;
    double error_w = 0, error_fast = 0, error_slow = 0, error_second = 0;

    void step(double g, const own::ademamix_options& o, double lr, double decay, int t) {
        constexpr double u = 0x1p-24;
        const auto mean = [&](double& error, double m, double beta) {
            error = beta * error + 3 * u * (1 - beta) * std::fabs(g - m);
        };
        mean(error_fast, p.fast, o.beta1), mean(error_slow, p.slow, o.beta3);
        error_second = o.beta2 * error_second + 2 * u * o.beta2 * p.second + 3 * u * (1 - o.beta2) * g * g;
        own::ademamix_options now = o;
        now.lr = lr, now.weight_decay = decay;
        const double before = p.w;
        p.step(g, now, t);
        error_fast += u * std::fabs(p.fast), error_slow += u * std::fabs(p.slow), error_second += u * p.second;

        const double scale = 1 / (1 - std::pow(o.beta1, t)), root = std::sqrt(p.second / (1 - std::pow(o.beta2, t)));
        const double error_root = p.second == 0 ? 0 : root * (error_second / (2 * p.second) + 3 * u);
        const double denominator = root + o.epsilon, error_denominator = error_root + u * (denominator + o.epsilon);
        const double direction = p.fast * scale + o.alpha * p.slow;
        const double error_direction = scale * error_fast + o.alpha * error_slow + 2 * u * std::fabs(p.fast * scale) +
                                       u * std::fabs(o.alpha * p.slow) + u * std::fabs(direction);
        const double update = lr * std::fabs(direction) / denominator;
        error_w += 3 * u * std::fabs(before) + update * (error_denominator / denominator + 4 * u) +
                   lr * error_direction / denominator + u * std::fabs(p.w);
    }
    /// The terms of second order are less than a thousandth of those of first order; `portable` rounds a product and a sum
    /// where the other sets round once.
    double bound(bool rounds_twice) const { return (rounds_twice ? 2 : 1.001) * error_w; }
};

TEST_CASE("own optimizer: AdEMAMix equals its definition over 30 steps, with groups of different rates") {
    const own::ademamix_options options{.lr = 0.01, .beta2 = 0.98, .beta3 = 0.99, .alpha = 5, .weight_decay = 0.5};
    support::for_each_set([&](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        small::model<ht::amp_bf16> model{device};
        ht::own_optimizer optimizer{
            device, model, options,
            std::vector<ht::parameter_group>{{"norm", {.weight_decay = 0}}, {"head", {.lr_scale = 0.5}}, {"fc2", ht::frozen}}};
        CHECK(optimizer.moments() == 3);
        CHECK(optimizer.options().alpha == 5);
        ht::accumulator acc{model, ht::unscaled};
        small::tape tape;
        struct exact {
            ht::view<float, 1> masters;
            std::size_t entry;
            double lr, decay;
            std::vector<tracked> all{};
        } groups[] = {{model.fc1.weight.master(), 0, 0.01, 0.5}, {model.norm.weight.master(), 1, 0.01, 0}, {model.head.weight.master(), 3, 0.005, 0.5}};
        for (exact& e : groups) {
            for (ht::extent i = 0; i < e.masters.size(); ++i) e.all.push_back({{static_cast<double>(e.masters(i))}});
        }
        const float frozen = model.fc2.weight.values()(1).bits();
        for (int t = 1; t <= 30; ++t) {
            tape.gradients = [&](std::size_t entry, std::size_t i) { return gradient_at(entry, i, t); };
            tape.backward(small::loss{}, acc, model.parameters());
            CHECK_FALSE(optimizer.step(acc.take()).skipped());
            for (exact& e : groups) {
                for (std::size_t i = 0; i < e.all.size(); ++i) {
                    e.all[i].step(static_cast<double>(gradient_at(e.entry, i, t)), options, e.lr, e.decay, t);
                    CHECK(std::fabs(static_cast<double>(e.masters(static_cast<ht::extent>(i))) - e.all[i].p.w) <=
                          e.all[i].bound(set == ht::isa::portable));
                }
            }
        }
        CHECK(model.fc2.weight.values()(1).bits() == frozen);
    });
}

TEST_CASE("own optimizer: a GPU's thread computes what the sets with fused multiply-adds compute") {
    const own::ademamix_rule rule = own::ademamix_options{}.rule();
    const auto s = rule.scalars_of({.weight_decay = 0.5}, {.steps = 3, .lr = 0.01});
    float of_thread[3] = {0.25f, -0.125f, 0.5f};
    const float w = ht::kernel::on_device::floats::updated_by_rule(s, 0.75f, 0.375f, of_thread, true);
    ht::portable::f32 of_vector[3] = {ht::portable::splat(0.25f), ht::portable::splat(-0.125f), ht::portable::splat(0.5f)};
    const ht::portable::f32 v = updated(s, ht::portable::splat(0.75f), ht::portable::splat(0.375f), of_vector, true);
    float lanes[ht::portable::f32::lanes];
    ht::portable::store(lanes, v);
    // `portable` rounds products; each of the five rounds once more.
    CHECK(std::fabs(static_cast<double>(lanes[0] - w)) <= 8 * 0x1p-24);
    CHECK(lanes[0] == lanes[ht::portable::f32::lanes - 1]);
}

TEST_CASE("own optimizer: a rate out of range, and a step with a gradient whose square is infinite") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::full_fp32> model{device};
    CHECK_THROWS_WITH_AS((ht::own_optimizer{device, model, own::ademamix_options{.lr = -1}}),
                         "ademamix: lr is -1; expected 0 or more", ht::argument_error);
    ht::own_optimizer optimizer{device, model, own::ademamix_options{}};
    ht::accumulator acc{model, ht::unscaled};
    small::tape tape;
    tape.gradients = [](std::size_t, std::size_t) { return 0x1p100f; };
    tape.backward(small::loss{}, acc, model.parameters());
    CHECK(optimizer.step(acc.take()).skipped());
}

}  // namespace optim_own_optimizer_tests
