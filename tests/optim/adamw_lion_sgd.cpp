// SPDX-License-Identifier: MIT
/// \file
/// AdamW, Lion and stochastic gradient descent over a model's parameters: their definitions and PyTorch's over many steps, groups,
/// micro-batches, narrow parameters, options that are refused.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/reference.hpp>
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/lion.hpp>
#include <halftone/optim/sgd.hpp>

#include "optim/golden_run.hpp"
#include "optim/tracked_adamw.hpp"
#include "support/each_set.hpp"

namespace optim_adamw_lion_sgd_tests {

namespace ht = halftone;
using support::u;

/// One parameter of SGD in exact arithmetic and a bound of what float arithmetic may have added, as golden::tracked_adamw is for AdamW.
struct tracked_sgd {
    double w = 0, m = 0;
    double error_w = 0, error_m = 0;

    void step(double g, double error_g, const ht::sgd_options& o, double lr, double weight_decay, int t) {
        double d = g + weight_decay * w;
        double error_d = error_g + weight_decay * error_w + 2 * u * weight_decay * std::fabs(w) + u * std::fabs(d);
        if (o.momentum != 0) {
            const double keep = t == 1 ? 0 : o.momentum, take = t == 1 ? 1 : 1 - o.dampening;
            error_m = keep * error_m + take * error_d + 2 * u * keep * std::fabs(m) + 2 * u * take * std::fabs(d);
            m = keep * m + take * d;
            error_m += u * std::fabs(m);
            const bool corrected = o.kind == ht::nesterov;
            error_d = corrected ? error_d + o.momentum * (error_m + 2 * u * std::fabs(m)) : error_m;
            d = corrected ? d + o.momentum * m : m;
            if (corrected) error_d += u * std::fabs(d);
        }
        w -= lr * d;
        error_w += lr * (error_d + 2 * u * std::fabs(d)) + u * std::fabs(w);
    }
    double bound() const { return 1.001 * error_w; }
};

/// What the tests read of an optimizer: PyTorch's steps, the options that are refused and a message, and options with which a
/// gradient of 0.5 moves a parameter by 1e-4 in each step.
struct adamw {
    using options = ht::adamw_options;
    template <class Model>
    using optimizer = ht::adamw<ht::cpu, Model>;

    using golden_policy = ht::amp_bf16;
    using golden_copy = ht::bfloat16;
    using tracked = golden::tracked_adamw;
    static constexpr const char* golden_file = "adamw.txt";
    static constexpr int golden_cases = 10;
    static options golden_options(const support::golden_line& head) {
        return {.lr = head.number(1),
                .beta1 = head.number(2),
                .beta2 = head.number(3),
                .epsilon = head.number(4),
                .weight_decay = head.number(5)};
    }

    static constexpr options moves = {.lr = 1e-4, .weight_decay = 0};
    static constexpr options refused[] = {
        {.weight_decay = -0.5}, {.lr = -1}, {.beta1 = 1}, {.beta2 = -0.1}, {.epsilon = -1e-8}};
    static constexpr const char* message = "adamw: weight_decay is -0.5; expected 0 or more";
};
struct lion {
    using options = ht::lion_options;
    template <class Model>
    using optimizer = ht::lion<ht::cpu, Model>;

    static constexpr options moves = {.lr = 1e-4};
    static constexpr options refused[] = {{.beta1 = 1}, {.lr = -1}, {.beta2 = -0.1}, {.weight_decay = -0.5}};
    static constexpr const char* message = "lion: a beta is 1; expected 0 or more and less than 1";
};
struct sgd {
    using options = ht::sgd_options;
    template <class Model>
    using optimizer = ht::sgd<ht::cpu, Model>;

    using golden_policy = ht::amp_fp16;
    using golden_copy = ht::float16;
    using tracked = tracked_sgd;
    static constexpr const char* golden_file = "sgd.txt";
    static constexpr int golden_cases = 7;
    static options golden_options(const support::golden_line& head) {
        return {.lr = head.number(1),
                .momentum = head.number(2),
                .dampening = head.number(3),
                .weight_decay = head.number(5),
                .kind = head.number(4) != 0 ? ht::momentum_kind::nesterov : ht::momentum_kind::plain};
    }

    static constexpr options moves = {.lr = 2e-4};
    static constexpr options refused[] = {{.kind = ht::nesterov},
                                          {.momentum = -1},
                                          {.lr = -1},
                                          {.weight_decay = -0.5},
                                          {.momentum = 0.9, .dampening = 0.1, .kind = ht::nesterov}};
    static constexpr const char* message =
        "sgd: Nesterov's momentum with momentum 0 and dampening 0; expected a momentum and no dampening";
};

TEST_CASE_TEMPLATE("adamw and sgd: equal torch.optim's within fp32 rounding, over 100 steps", O, adamw, sgd) {
    const std::vector<support::golden_line> lines = support::read_golden(O::golden_file);
    int cases = 0;
    support::for_each_set([&](ht::isa set) {
        for (std::size_t at = 0; at < lines.size(); ++cases) {
            ht::cpu device{{.threads = 2, .instruction_set = set}};
            golden::equals_torch<O>(device, lines, at);
        }
    });
    CHECK(cases >= O::golden_cases);
}

/// Gradients that are multiples of 1/256, of either sign.
float gradient_at(std::size_t entry, std::size_t i, int t) {
    return static_cast<float>(static_cast<int>((i * 7919 + entry * 31 + static_cast<std::size_t>(t) * 104729) % 257) -
                              128) /
           256;
}

TEST_CASE("lion: equals its definition over 30 steps of two micro-batches each, with groups of different rates") {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        small::model<ht::amp_bf16> model{device};
        ht::lion optimizer{device,
                           model,
                           {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.98, .weight_decay = 0.5},
                           {{"norm", {.weight_decay = 0}}, {"head", {.lr_scale = 0.5}}, {"fc2", ht::frozen}}};
        ht::accumulator acc{model, ht::unscaled};
        small::tape tape;
        const ht::view<float, 1> fc1 = model.fc1.weight.master(), norm = model.norm.weight.master(),
                                 head = model.head.weight.master();
        struct exact {
            ht::view<float, 1> masters;
            std::size_t entry;
            double lr, decay;
            std::vector<double> w{}, m{};
        } all[] = {{fc1, 0, 0.01, 0.5}, {norm, 1, 0.01, 0}, {head, 3, 0.005, 0.5}};
        for (exact& e : all) {
            for (ht::extent i = 0; i < e.masters.size(); ++i) e.w.push_back(static_cast<double>(e.masters(i)));
            e.m.resize(e.w.size());
        }
        const float frozen = model.fc2.weight.values()(1).bits();
        for (int t = 0; t < 30; ++t) {
            for (const int part : {0, 1}) {
                tape.gradients = [&](std::size_t entry, std::size_t i) { return gradient_at(entry, i, 2 * t + part); };
                tape.backward(small::loss{}, acc, model.parameters());
            }
            CHECK_FALSE(optimizer.step(acc.take()).skipped());
            for (exact& e : all) {
                for (std::size_t i = 0; i < e.w.size(); ++i) {
                    double g = static_cast<double>(gradient_at(e.entry, i, 2 * t)) +
                               static_cast<double>(gradient_at(e.entry, i, 2 * t + 1));
                    const ht::shape<1> one{1};
                    ht::reference::lion(ht::view<double, 1>(&e.w[i], one), ht::view<double, 1>(&g, one),
                                        ht::view<double, 1>(&e.m[i], one), {0.9, 0.98}, e.lr, e.decay);
                    // A step rounds a parameter, its decay and its update once each.
                    const double bound = 3 * (t + 1) * 0x1p-24 * (std::fabs(e.w[i]) + 1);
                    CHECK(std::fabs(static_cast<double>(e.masters(static_cast<ht::extent>(i))) - e.w[i]) <= bound);
                }
            }
        }
        CHECK(optimizer.steps() == 30);
        CHECK(model.fc2.weight.values()(1).bits() == frozen);
        for (ht::extent i = 0; i < fc1.size(); ++i)
            CHECK(model.fc1.weight.values()(i).bits() == ht::bfloat16(fc1(i)).bits());
    });
}

TEST_CASE_TEMPLATE("optimizers: options out of range are refused", O, adamw, lion, sgd) {
    ht::cpu device{{.threads = 1}};
    using model_type = small::model<ht::full_fp32>;
    model_type model{device};
    using optimizer = typename O::template optimizer<model_type>;
    for (const typename O::options& options : O::refused)
        CHECK_THROWS_AS((optimizer{device, model, options}), ht::argument_error);
    CHECK_THROWS_WITH_AS((optimizer{device, model, O::refused[0]}), O::message, ht::argument_error);
}

TEST_CASE_TEMPLATE("optimizers: bf16 parameters without a master move on average, and in the same way each time", O,
                   adamw, lion, sgd) {
    ht::cpu device{{.threads = 2}};
    const auto train = [&](std::uint64_t seed) {
        using model_type = small::model<ht::with_state<ht::pure_bf16, ht::bfloat16>>;
        model_type model{device, 4001};
        for (int i = 0; i < 4001; ++i) model.fc1.weight.master()(i) = ht::bfloat16(1.0f);
        typename O::options options = O::moves;
        options.seed = seed;
        typename O::template optimizer<model_type> optimizer{device, model, options};
        ht::accumulator acc{model, ht::unscaled};
        small::tape tape;
        tape.gradients = [](std::size_t, std::size_t) { return 0.5f; };
        for (int t = 0; t < 10; ++t) {
            tape.backward(small::loss{}, acc, model.parameters());
            optimizer.step(acc.take());
        }
        double sum = 0;
        std::vector<std::uint16_t> bits;
        for (int i = 0; i < 4001; ++i) {
            sum += static_cast<double>(static_cast<float>(model.fc1.weight.master()(i)));
            bits.push_back(model.fc1.weight.master()(i).bits());
        }
        return std::pair(1 - sum / 4001, bits);
    };
    const auto [moved, bits] = train(1);
    // Ten steps of 1e-4, each far below half of a bf16's step at 1, which is 2^-9. Each of 40,010 roundings is off by
    // at most 2^-8, so the mean over 4001 is within five standard deviations of sqrt(10 / 4001) 2^-9.
    CHECK(std::fabs(moved - 1e-3) < 5 * std::sqrt(10.0 / 4001) * 0x1p-9);
    CHECK(moved > 0);
    CHECK(train(1).second == bits);
    CHECK(train(2).second != bits);
}

TEST_CASE("sgd: without momentum it has no memory for moments") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::full_fp32> model{device};
    ht::sgd plain{device, model, {.lr = 0.1}};
    CHECK(device.memory().usage().live(ht::memory_kind::moment) == 0);
    ht::sgd heavy{device, model, {.lr = 0.1, .momentum = 0.9}};
    CHECK(device.memory().usage().live(ht::memory_kind::moment) == (128 + 64 + 128 + 64) * sizeof(float));
}

}  // namespace optim_adamw_lion_sgd_tests
