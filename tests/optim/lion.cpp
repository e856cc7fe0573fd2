// SPDX-License-Identifier: MIT
/// \file
/// Lion over a model's parameters: its definition over many steps, groups, micro-batches, narrow parameters.
#include <doctest/doctest.h>

#include <halftone/kernel/optimizer_step/reference.hpp>
#include <halftone/optim/lion.hpp>

#include "optim/small_model.hpp"
#include "support/each_set.hpp"

namespace optim_lion_tests {

namespace ht = halftone;

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

TEST_CASE("lion: options out of range are refused") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::full_fp32> model{device};
    using optimizer = ht::lion<ht::cpu, small::model<ht::full_fp32>>;
    CHECK_THROWS_AS((optimizer{device, model, {.lr = -1}}), ht::argument_error);
    CHECK_THROWS_WITH_AS((optimizer{device, model, {.beta1 = 1}}),
                         "lion: a beta is 1; expected 0 or more and less than 1", ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.beta2 = -0.1}}), ht::argument_error);
    CHECK_THROWS_AS((optimizer{device, model, {.weight_decay = -0.5}}), ht::argument_error);
}

TEST_CASE("lion: bf16 parameters without a master move on average, and in the same way each time") {
    ht::cpu device{{.threads = 2}};
    const auto train = [&](std::uint64_t seed) {
        small::model<ht::with_state<ht::pure_bf16, ht::bfloat16>> model{device, 4001};
        for (int i = 0; i < 4001; ++i) model.fc1.weight.master()(i) = ht::bfloat16(1.0f);
        ht::lion optimizer{device, model, {.lr = 1e-4, .seed = seed}};
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
    // As for AdamW (adamw.cpp): five standard deviations of the mean of 40,010 roundings below 1.
    CHECK(std::fabs(moved - 1e-3) < 5 * std::sqrt(10.0 / 4001) * 0x1p-9);
    CHECK(moved > 0);
    CHECK(train(1).second == bits);
    CHECK(train(2).second != bits);
}

}  // namespace optim_lion_tests
