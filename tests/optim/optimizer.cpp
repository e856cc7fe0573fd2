// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/optim/optimizer.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/scale/static_scaler.hpp>

#include "optim/small_model.hpp"
#include "support/each_set.hpp"

namespace optim_optimizer_tests {

namespace ht = halftone;

/// Every byte that a step may change.
template <class Optimizer>
std::string bytes_of(ht::store& parameters, const Optimizer& optimizer) {
    std::string all;
    const auto add = [&](const std::byte* data, std::size_t n) { all.append(reinterpret_cast<const char*>(data), n); };
    for (std::size_t g = 0; g < parameters.groups().size(); ++g) {
        add(parameters.groups()[g].master.data(), parameters.groups()[g].master.bytes());
        add(parameters.groups()[g].copy.data(), parameters.groups()[g].copy.bytes());
        for (int which = 0; which < optimizer.moments(); ++which)
            add(optimizer.moment(which, g).data(), optimizer.moment(which, g).size());
    }
    return all;
}

float gradient(int step, std::size_t entry, std::size_t i) {
    return static_cast<float>(
               static_cast<int>((i * 7919 + entry * 31 + static_cast<std::size_t>(step) * 104729) % 257) - 128) /
           256;
}

template <class P>
struct run {
    explicit run(ht::cpu& d, ht::extent width = 67, const ht::adamw_options& options = {.lr = 0.01, .seed = 3})
        : device(d), model(d, width), optimizer(d, model, options), scaler(d), acc(model) {}

    auto step(int t, float worst = 0) {
        tape.gradients = [=](std::size_t entry, std::size_t i) {
            return entry == 2 && i == 5 ? gradient(t, entry, i) + worst : gradient(t, entry, i);
        };
        for (int micro = 0; micro < 2; ++micro) tape.backward(scaler.scale(small::loss{} / 2), acc, model.parameters());
        auto grads = scaler.unscale(acc.take());
        ht::clip_grad_norm(grads, 1.0f);
        const auto outcome = optimizer.step(grads);
        scaler.update();
        return outcome;
    }
    std::string bytes() { return bytes_of(model.parameters(), optimizer); }

    ht::cpu& device;
    small::model<P> model;
    ht::adamw<ht::cpu, small::model<P>> optimizer;
    ht::grad_scaler<ht::cpu> scaler;
    ht::accumulator<ht::through_scaler, ht::types<small::model<P>>> acc;
    small::tape tape;
};

TEST_CASE("optimizer: a skipped step changes no byte") {
    ht::cpu device{{.threads = 1}};
    run<ht::amp_fp16> r{device};
    CHECK_FALSE(r.step(1).skipped());
    const std::string before = r.bytes();
    for (const float worst : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        CHECK(r.step(2, worst).skipped());
        CHECK((r.bytes() == before));
        CHECK(r.optimizer.steps() == 1);
    }
    CHECK(r.optimizer.skipped_steps() == 2);
    CHECK_FALSE(r.step(2).skipped());
    CHECK((r.bytes() != before));

    // The same bits as without the skipped steps: gradients are scaled by powers of two.
    run<ht::amp_fp16> other{device};
    other.step(1), other.step(2);
    CHECK((other.bytes() == r.bytes()));
}

TEST_CASE("optimizer: a step of unscaled gradients is skipped, too, if one of them is not finite") {
    ht::cpu device{{.threads = 1}};
    using model_type = small::model<ht::amp_bf16>;
    const auto check = [&](auto clip, bool clips) {
        for (const float worst : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::quiet_NaN()}) {
            model_type model{device};
            ht::adamw optimizer{device, model, {.lr = 0.01}};
            ht::accumulator acc{model, ht::unscaled};
            small::tape tape;
            const auto step = [&](float extra) {
                tape.gradients = [=](std::size_t entry, std::size_t i) {
                    return entry == 2 && i == 5 ? extra : gradient(1, entry, i);
                };
                tape.backward(small::loss{}, acc, model.parameters());
                auto grads = acc.take();
                clip(grads);
                return optimizer.step(grads);
            };
            CHECK_FALSE(step(0.5f).skipped());
            const std::string before = bytes_of(model.parameters(), optimizer);
            CHECK(step(worst).skipped());
            CHECK((bytes_of(model.parameters(), optimizer) == before));
            CHECK(optimizer.steps() == 1);
            CHECK(optimizer.skipped_steps() == 1);
            // The largest float is finite, its square is not.
            CHECK(step(std::numeric_limits<float>::max()).skipped() != clips);
        }
    };
    check([](auto&) {}, false);
    check([&](auto& grads) { ht::clip_grad_value(device, grads, 0.5f); }, true);
    check([&](auto& grads) { ht::clip_grad_norm(device, grads, 1.0f), ht::clip_grad_value(device, grads, 0.5f); },
          true);
}

TEST_CASE("optimizer: steps are skipped also with ht::no_scaling") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::amp_bf16> model{device};
    ht::sgd optimizer{device, model, {.lr = 1}};
    ht::no_scaling scaler{device};
    ht::accumulator acc{model};
    small::tape tape;
    for (const float worst : {std::numeric_limits<float>::infinity(), 1.0f}) {
        tape.gradients = [=](std::size_t, std::size_t i) { return i == 0 ? worst : 0.25f; };
        tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
        CHECK(optimizer.step(scaler.unscale(acc.take())).skipped() == (worst != 1.0f));
        scaler.update();
    }
}

TEST_CASE("optimizer: the same bits with one thread and with several, on each instruction set") {
    support::for_each_set([](ht::isa set) {
        const auto train = [set](auto policy, int threads) {
            ht::cpu device{{.threads = threads, .instruction_set = set}};
            run<decltype(policy)> r{device, 50001};
            for (int t = 1; t <= 3; ++t) r.step(t);
            return r.bytes();
        };
        const auto check = [&](auto policy) {
            const std::string one = train(policy, 1);
            CHECK((one == train(policy, 2)));
            CHECK((one == train(policy, 3)));
        };
        check(ht::amp_bf16{});
        check(ht::with_state<ht::pure_bf16, ht::bfloat16>{});
    });
}

TEST_CASE("optimizer: after the first steps a step allocates nothing") {
    ht::cpu device{{.threads = 2}};
    run<ht::amp_fp16> r{device, 40000};
    r.step(1);
    const auto allocations = device.memory().usage().allocations();
    for (int t = 2; t < 6; ++t) r.step(t);
    CHECK(device.memory().usage().allocations() == allocations);
}

TEST_CASE("optimizer: a resumed optimizer continues with the same bits") {
    ht::cpu device{{.threads = 2}};
    run<ht::with_state<ht::pure_bf16, ht::bfloat16>> whole{device}, half{device}, resumed{device};
    for (int t = 1; t <= 6; ++t) whole.step(t);
    for (int t = 1; t <= 3; ++t) half.step(t);

    resumed.optimizer.load(half.optimizer.state());
    resumed.scaler.load(half.scaler.state());
    for (std::size_t g = 0; g < half.model.parameters().groups().size(); ++g) {
        const ht::buffer& from = half.model.parameters().groups()[g].master;
        std::memcpy(resumed.model.parameters().groups()[g].master.data(), from.data(), from.bytes());
        for (int which = 0; which < 2; ++which) {
            const auto moments = half.optimizer.moment(which, g);
            std::memcpy(resumed.optimizer.moment(which, g).data(), moments.data(), moments.size());
        }
    }
    resumed.model.parameters().refresh();
    for (int t = 4; t <= 6; ++t) resumed.step(t);
    CHECK((resumed.bytes() == whole.bytes()));
    CHECK(resumed.optimizer.steps() == 6);
}

TEST_CASE("optimizer: an outcome is read before the next step") {
    ht::cpu device{{.threads = 1}};
    run<ht::amp_fp16> r{device};
    const auto first = r.step(1, std::numeric_limits<float>::infinity());
    CHECK(first.skipped());
    const auto second = r.step(2);
    CHECK_THROWS_AS(static_cast<void>(first.skipped()), ht::state_error);
    CHECK_FALSE(second.skipped());
}

TEST_CASE("optimizer: the learning rate, set and read") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::full_fp32> model{device};
    ht::sgd optimizer{device, model, {.lr = 1}};
    ht::accumulator acc{model, ht::unscaled};
    small::tape tape;
    tape.gradients = [](std::size_t, std::size_t) { return 1.0f; };
    const float before = model.fc1.weight.master()(0);
    optimizer.set_lr(0.5);
    CHECK(optimizer.lr() == 0.5);
    tape.backward(small::loss{}, acc, model.parameters());
    optimizer.step(acc.take());
    CHECK(model.fc1.weight.master()(0) == before - 0.5f);
    CHECK_THROWS_AS(optimizer.set_lr(-1), ht::argument_error);
    CHECK_THROWS_AS(optimizer.set_lr(std::numeric_limits<double>::infinity()), ht::argument_error);
    CHECK_THROWS_AS(optimizer.load({.steps = -1}), ht::argument_error);
    CHECK(optimizer.state().steps == 1);
    CHECK(optimizer.state().lr == 0.5);
}

TEST_CASE("optimizer: a parameter that no backward pass of the window reached is unchanged") {
    ht::cpu device{{.threads = 1}};
    using P = ht::full_fp32;
    // The entries that each window reaches: only these are updated; the others are not decayed, and their step counts stay.
    const std::vector<std::vector<std::size_t>> windows = {{0, 1, 2, 3}, {0, 2}, {0, 2}, {3}, {}, {0, 1, 2, 3}};
    run<P> some(device, 67, {.lr = 0.01, .weight_decay = 0.5}), all(device, 67, {.lr = 0.01, .weight_decay = 0.5});
    ht::sgd momentum{device, all.model, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.5}};
    const auto parameter = [](run<P>& r, std::size_t entry) {
        const ht::store_entry& e = r.model.parameters().entries()[entry];
        const auto* from = reinterpret_cast<const float*>(r.model.parameters().groups()[e.group].master.data());
        return std::vector<float>(from + e.master, from + e.master + e.count);
    };
    const auto step = [&](run<P>& r, auto& optimizer, const std::vector<std::size_t>& reached) {
        for (const std::size_t entry : reached) {
            r.acc.receive(r.scaler.scale(small::loss{}));
            const auto place = r.acc.find(r.model.parameters())->claim(entry);
            for (std::size_t i = 0; i < r.model.parameters().entries()[entry].count; ++i)
                reinterpret_cast<float*>(place.data)[i] = gradient(1, entry, i);
        }
        if (reached.empty()) r.acc.receive(r.scaler.scale(small::loss{}));
        auto grads = r.scaler.unscale(r.acc.take());
        const auto result = optimizer.step(grads).result();
        r.scaler.update();
        return result;
    };
    for (const auto& reached : windows) {
        for (const bool adam : {true, false}) {
            run<P>& r = adam ? some : all;
            std::vector<std::vector<float>> before;
            for (std::size_t entry = 0; entry < 4; ++entry) before.push_back(parameter(r, entry));
            const auto result = adam ? step(r, r.optimizer, reached) : step(r, momentum, reached);
            CHECK(result == (reached.empty() ? ht::step_result::nothing : ht::step_result::taken));
            for (std::size_t entry = 0; entry < 4; ++entry) {
                const bool is_reached = std::find(reached.begin(), reached.end(), entry) != reached.end();
                const std::vector<float> after = parameter(r, entry);
                CHECK((after == before[entry]) == !is_reached);
                // All elements, up to the last one.
                CHECK((after.back() == before[entry].back()) == !is_reached);
            }
        }
    }
}

TEST_CASE("optimizer: parameters frozen after it was made are detected") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::amp_bf16> model{device};
    ht::sgd optimizer{device, model};
    model.parameters().freeze("head");
    ht::accumulator acc{model, ht::unscaled};
    acc.receive(small::loss{});
    CHECK_THROWS_WITH_AS(optimizer.step(acc.take()),
                         "sgd: parameters were frozen after this optimizer was made; freeze first", ht::state_error);
}

TEST_CASE("optimizer: gradients of another model of the same type") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::amp_bf16> mine{device}, other{device};
    ht::sgd optimizer{device, mine};
    ht::accumulator acc{other, ht::unscaled};
    acc.receive(small::loss{});
    CHECK_THROWS_AS(optimizer.step(acc.take()), ht::argument_error);
}

TEST_CASE("optimizer: bytes of a parameter's training state are those of its types") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::amp_bf16> model{device, 64000 - 3};
    const std::size_t n = 64000 + 64000 + 64 + 64;
    ht::adamw optimizer{device, model};
    ht::accumulator acc{model, ht::unscaled};
    const ht::memory_usage& usage = device.memory().usage();
    CHECK(usage.live(ht::memory_kind::master) == 4 * n);
    CHECK(usage.live(ht::memory_kind::copy) == 2 * (n - 64));
    CHECK(usage.live(ht::memory_kind::moment) == 8 * n);
    CHECK(usage.live(ht::memory_kind::gradient) == 4 * n + 64);
}

}  // namespace optim_optimizer_tests
