// SPDX-License-Identifier: MIT
/// \file
/// Lion and SGD with moments in 8 bits on the CPU.
#include <halftone/kernel/optimizer_step/eight_bit/cpu.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/reference.hpp>
#include <halftone/optim/lion.hpp>
#include <halftone/optim/lion_8bit.hpp>
#include <halftone/optim/sgd_8bit.hpp>

#include "optim/adamw_8bit_checks.hpp"
#include "support/bounds.hpp"
#include "support/each_set.hpp"

namespace optim_eight_bit_rules_tests {

namespace ht = halftone;
using namespace adamw_8bit_checks;
using policy = ht::amp_bf16;
using model_type = small::model<policy>;
using lion_8bit = ht::lion_8bit<ht::cpu, model_type>;
using sgd_8bit = ht::sgd_8bit<ht::cpu, model_type>;

constexpr ht::lion_8bit_options lion_options{.lr = 0.01, .beta2 = 0.98, .weight_decay = 0.1, .min_8bit_size = least, .ema_decay = 0.75};
constexpr ht::sgd_8bit_options sgd_options{
    .lr = 0.1, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.1, .min_8bit_size = least, .ema_decay = 0.75};

/// What is too small for 8 bits has the bits of the optimizer with floats, and everything has if all of it is small.
template <class Eight, class Floats, class EightOptions, class FloatsOptions>
void small_parameters_are_exact(const EightOptions& options, const FloatsOptions& of_floats) {
    ht::cpu device{{.threads = 2}};
    run<ht::cpu, policy, Eight> mine(device, options, groups);
    EightOptions all_small = options;
    all_small.min_8bit_size = width + 4;
    run<ht::cpu, policy, Eight> none(device, all_small, groups);
    run<ht::cpu, policy, Floats> exact(device, of_floats, groups);
    CHECK(mine.optimizer.is_eight_bit(0));
    CHECK_FALSE(mine.optimizer.is_eight_bit(1));
    for (int t = 1; t <= 6; ++t) {
        const bool overflow = t == 3;
        const std::vector<std::byte> before = mine.bytes();
        CHECK(mine.step(t, overflow) == !overflow);
        CHECK(none.step(t, overflow) == !overflow);
        CHECK(exact.step(t, overflow) == !overflow);
        CHECK((mine.bytes() == before) == overflow);
        for (const std::size_t entry : {1u, 3u}) CHECK((mine.masters(entry) == exact.masters(entry)));
        for (const std::size_t entry : {0u, 1u, 2u, 3u}) CHECK((none.masters(entry) == exact.masters(entry)));
    }
    CHECK_FALSE((mine.masters(0) == exact.masters(0)));
}

TEST_CASE("lion_8bit, sgd_8bit: what is too small for 8 bits has the bits of lion and sgd; skipped steps change nothing") {
    small_parameters_are_exact<lion_8bit, ht::lion<ht::cpu, model_type>>(
        lion_options, ht::lion_options{.lr = 0.01, .beta2 = 0.98, .weight_decay = 0.1, .ema_decay = 0.75});
    small_parameters_are_exact<sgd_8bit, ht::sgd<ht::cpu, model_type>>(
        sgd_options,
        ht::sgd_options{.lr = 0.1, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.1, .ema_decay = 0.75});
}

TEST_CASE("lion_8bit, sgd_8bit: parameters that are not reached keep their codes; a run goes on from its state") {
    ht::cpu device{{.threads = 2}};
    resumes<policy, ht::cpu, lion_8bit>(device, lion_options);
    resumes<policy, ht::cpu, sgd_8bit>(device, sgd_options);
}

/// Steps of an optimizer over one parameter, each compared with step(weights, gradients, moment, t), the definition, from
/// the state before it: parameters within `roundings` of the terms' size, codes equal or neighbours.
template <class Optimizer, class Options, class Step>
void follows(const Options& options, double lr, double gamma, const Step& step) {
    support::for_each_set([&](ht::isa set) {
        ht::cpu device{{.threads = 2, .instruction_set = set}};
        model_type model{device, width};
        Optimizer optimizer{device, model, options};
        ht::accumulator acc{model, ht::unscaled};
        small::tape tape;
        const ht::view<float, 1> fc1 = model.fc1.weight.master();
        for (int t = 1; t <= 8; ++t) {
            std::vector<double> w, g;
            for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) {
                w.push_back(static_cast<double>(fc1(static_cast<ht::extent>(i))));
                g.push_back(static_cast<double>(gradient_of(0, i, t)));
            }
            const std::vector<double> before = w;
            const std::size_t group = model.parameters().entries()[0].group;
            std::vector<std::uint8_t> codes(optimizer.codes(0, group).begin(), optimizer.codes(0, group).begin() + width);
            std::vector<float> absmax(optimizer.absmax(0, group).begin(), optimizer.absmax(0, group).begin() + 3);
            step(ht::detail::flat_view(w), ht::detail::flat_view(g),
                 ht::reference::eight_bit_moment{{codes.data(), {width}}, {absmax.data(), {3}}}, static_cast<double>(t));
            tape.gradients = [&](std::size_t entry, std::size_t i) { return gradient_of(entry, i, t); };
            tape.backward(small::loss{}, acc, model.parameters());
            optimizer.step(acc.take());
            support::comparison masters;
            int far = 0;
            for (std::size_t i = 0; i < w.size(); ++i) {
                masters.expect(static_cast<double>(fc1(static_cast<ht::extent>(i))), w[i],
                               support::gamma(6) * (std::fabs(before[i]) + lr * (1 + gamma)));
                far += std::abs(optimizer.codes(0, group)[i] - codes[i]) > 1 ? 1 : 0;
            }
            CHECK_WITHIN(masters);
            CHECK(far == 0);
        }
    });
}

TEST_CASE("lion_8bit, sgd_8bit: steps are those of their definitions") {
    // No direction of this Lion is 0 or near it: its mean has the weight 0.
    follows<lion_8bit>(ht::lion_8bit_options{.lr = 0.01, .beta1 = 0, .beta2 = 0.98, .weight_decay = 0.1, .min_8bit_size = least}, 0.01, 0,
                       [](const auto& w, const auto& g, const auto& m, double) {
                           ht::reference::lion_8bit(w, g, m, {0, 0.98}, 0.01, 0.1);
                       });
    // Gradients are at most 0.5, so that a momentum stays below 5.
    for (const ht::momentum_kind kind : {ht::momentum_kind::plain, ht::nesterov}) {
        follows<sgd_8bit>(ht::sgd_8bit_options{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1, .kind = kind, .min_8bit_size = least},
                          0.01, 20, [&](const auto& w, const auto& g, const auto& m, double t) {
                              ht::reference::sgd_8bit(w, g, m, {0.9, 0, kind}, 0.01, 0.1, t);
                          });
    }
}

TEST_CASE("lion_8bit, sgd_8bit: state of at most 1.05 bytes a parameter") {
    ht::cpu device{{.threads = 1}};
    model_type model{device, 100000};
    const auto bytes_of = [&](const auto& make) {
        const std::size_t before = device.memory().usage().live(ht::memory_kind::moment);
        const auto optimizer = make();
        return device.memory().usage().live(ht::memory_kind::moment) - before;
    };
    const std::size_t lion = bytes_of([&] { return std::make_unique<lion_8bit>(device, model); });
    const std::size_t sgd = bytes_of([&] { return std::make_unique<sgd_8bit>(device, model); });
    CHECK(lion == sgd);
    CHECK(lion >= 200003);
    CHECK(static_cast<double>(lion) <= 1.05 * 200003);
}

TEST_CASE("lion_8bit, sgd_8bit: options out of range are refused") {
    ht::cpu device{{.threads = 1}};
    model_type model{device};
    CHECK_THROWS_WITH_AS((lion_8bit{device, model, {.beta1 = 1}}),
                         "lion_8bit: a beta is 1; expected 0 or more and less than 1", ht::argument_error);
    CHECK_THROWS_WITH_AS((lion_8bit{device, model, {.min_8bit_size = -1}}),
                         "lion_8bit: min_8bit_size is -1; expected 0 or more", ht::argument_error);
    CHECK_THROWS_WITH_AS((sgd_8bit{device, model, {.momentum = 0}}),
                         "sgd_8bit: momentum is 0; expected more than 0, since ht::sgd without it has no state",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS((sgd_8bit{device, model, {.dampening = 0.5, .kind = ht::nesterov}}),
                         "sgd_8bit: Nesterov's momentum with momentum 0.9 and dampening 0.5; expected a momentum and no "
                         "dampening",
                         ht::argument_error);
    CHECK_THROWS_AS((sgd_8bit{device, model, {.lr = -1}}), ht::argument_error);
}

}  // namespace optim_eight_bit_rules_tests
