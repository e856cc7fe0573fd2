// SPDX-License-Identifier: MIT
/// \file
/// Captured steps on the emulated machine: the bits of steps that run as they are, when they are captured and why, and what
/// does not get past a capture.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/kernel/device.hpp>
#include <halftone/tensor/tensor.hpp>
#include <halftone/train/captured_step.hpp>

#include <emulator/device.hpp>

#include "train/captured.hpp"

namespace {

namespace ht = halftone;
using ht::step_run;
using machine = ht::emulator::device;
static_assert(ht::capturing_device<machine>);
static_assert(!ht::capturing_device<ht::cpu>);

bool mentions(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// Other files look for races in these kernels.
ht::emulator::options quick(std::uint64_t seed) { return {.seed = seed, .check = ht::emulator::checking::values_only}; }

TEST_CASE("captured step: the same bits as steps that run as they are, whatever changes on the device meanwhile") {
    using P = ht::amp_fp16;
    machine one{quick(1)}, two{quick(99)};
    captured::parts<P, machine> plain(one), other(two);
    ht::captured_step step{two, [&](const captured::batch& b) { return other.body(b); }};
    captured::ids ids;
    std::vector<step_run> runs;
    std::vector<float> scales;
    for (int t = 0; t < 16; ++t) {
        CAPTURE(t);
        const auto change = [&](auto& p) {
            if (t == 6) p.optimizer.set_lr(3e-3);
            if (t == 7) p.optimizer.set_schedule({.shape = ht::cosine, .total_steps = 20, .final_ratio = 0.1});
            if (t == 12) p.scaler.update(1024.0f);
            if (t == 13) {
                auto s = p.scaler.state();
                s.growth_interval = 1;
                p.scaler.load(s);
            }
        };
        change(plain), change(other);
        // From the eighth step on, two shapes in turn.
        const captured::batch b = t >= 8 && t % 2 == 0 ? ids.next(1, 8) : ids.next(2, 5);
        const float loss = plain.body(b).item();
        runs.push_back(step(b));
        CHECK(step.loss() == loss);
        CHECK(other.bytes() == plain.bytes());
        CHECK(other.optimizer.last_step_skipped() == plain.optimizer.last_step_skipped());
        scales.push_back(plain.scaler.get_scale());
    }
    CHECK(runs[0] == step_run::uncaptured);
    CHECK(runs[1] == step_run::captured);
    for (int t = 2; t < 8; ++t) CHECK(runs[static_cast<std::size_t>(t)] == step_run::replayed);
    CHECK(runs[8] == step_run::uncaptured);
    CHECK(runs[15] == step_run::replayed);
    CHECK(runs[14] == step_run::replayed);
    // Or nothing of this was tested.
    CHECK(other.optimizer.skipped_steps() > 2);
    CHECK(other.optimizer.steps() > 8);
    bool grew = false;
    for (std::size_t i = 1; i < scales.size(); ++i) grew = grew || scales[i] > scales[i - 1];
    CHECK(grew);
}

TEST_CASE("captured step: says why each step ran as it did") {
    machine device{quick(3)};
    captured::parts<ht::amp_bf16, machine> p(device);
    int host_calls = 0;
    ht::captured_step step{device,
                           [&](const captured::batch& b) {
                               ++host_calls;
                               return p.body(b);
                           },
                           {.most_graphs = 2}};
    CHECK_THROWS_AS(step.loss(), ht::state_error);
    captured::ids ids;
    const auto run = [&](ht::extent rows, ht::extent time) { return step(ids.next(rows, time)); };

    CHECK(run(1, 8) == step_run::uncaptured);
    CHECK(step.reason() == "uncaptured: a step of (1, 8), (1, 8); the first one");
    CHECK(run(1, 8) == step_run::captured);
    CHECK(step.reason() == "captured: a step of (1, 8), (1, 8)");
    CHECK(run(1, 8) == step_run::replayed);
    CHECK(host_calls == 2);

    // Another shape, twice, and back: both stay.
    CHECK(run(1, 4) == step_run::uncaptured);
    CHECK(step.reason() == "uncaptured: a step of (1, 4), (1, 4); the one before was of (1, 8), (1, 8)");
    CHECK(run(1, 4) == step_run::captured);
    CHECK(run(1, 8) == step_run::replayed);
    CHECK(run(1, 4) == step_run::replayed);
    // A third one: there is room for two.
    CHECK(run(1, 3) == step_run::uncaptured);
    CHECK(step.reason() == "uncaptured: a step of (1, 3), (1, 3); the one before was of (1, 4), (1, 4), and (1, 8), (1, 8) made room for it");
    CHECK(run(1, 4) == step_run::replayed);
    CHECK(run(1, 8) == step_run::uncaptured);

    // Memory that moves: scratch that had to grow for others.
    CHECK(run(1, 8) == step_run::captured);
    CHECK(run(1, 8) == step_run::replayed);
    { const ht::workspace::lease large(device.scratch(), std::size_t{1} << 24); }
    CHECK(run(1, 8) == step_run::uncaptured);
    CHECK(step.reason() == "uncaptured: a step of (1, 8), (1, 8); scratch memory has moved");
    CHECK(run(1, 8) == step_run::captured);
    CHECK(step.reason() == "captured anew: a step of (1, 8), (1, 8); scratch memory has moved");
    CHECK(run(1, 8) == step_run::replayed);
    // Scratch that needs a second block while the first is out: whether it is joined decides the next step.
    {
        const ht::workspace::lease first(device.scratch(), 64), second(device.scratch(), std::size_t{1} << 25);
    }
    CHECK(run(1, 8) == step_run::replayed);
    // And a step of its tape that grew for others.
    CHECK_NOTHROW(p.tape.template make<float>(ht::shape<1>{1 << 20}, false));
    CHECK(run(1, 8) == step_run::replayed);
    CHECK_NOTHROW(p.tape.template make<float>(ht::shape<1>{1}, false));
    CHECK(run(1, 8) == step_run::uncaptured);
    CHECK(mentions(step.reason(), "results lie elsewhere"));
    CHECK(run(1, 8) == step_run::captured);

    // What the step reads of the host is that of the capture, until renew().
    step.renew("another limit of clipping");
    CHECK(run(1, 8) == step_run::captured);
    CHECK(step.reason() == "captured anew: a step of (1, 8), (1, 8); another limit of clipping");
    CHECK(step.captures() == 6);
    CHECK_THROWS_AS(ht::captured_step(device, [](const captured::batch&) {}, {.most_graphs = 0}), ht::argument_error);
}

TEST_CASE("captured step: a frozen parameter is not trained on by a replay") {
    machine device{quick(4)};
    captured::parts<ht::amp_bf16, machine> p(device);
    ht::captured_step step{device, [&](const captured::batch& b) { return p.body(b); }};
    captured::ids ids;
    for (int t = 0; t < 3; ++t) step(ids.next(1, 4));
    CHECK(step.replays() == 1);
    CHECK(p.model.parameters().freeze("h.0.mlp.up") == 2);
    CHECK_THROWS_AS(step(ids.next(1, 4)), ht::state_error);  // the optimizer's own sentence
    CHECK(step.replays() == 1);
}

TEST_CASE("captured step: a value of the host is that of the capture") {
    machine one{quick(1)}, two{quick(2)};
    captured::parts<ht::full_fp32, machine> plain(one), other(two);
    ht::captured_step step{two, [&](const captured::batch& b) { return other.body(b); }};
    captured::ids ids;
    const auto same_after = [&](float max_norm) {
        plain.max_norm = other.max_norm = max_norm;
        const captured::batch b = ids.next(1, 4);
        plain.body(b), step(b);
        return plain.bytes() == other.bytes();
    };
    for (int t = 0; t < 4; ++t) CHECK(same_after(1));
    step.renew("max_norm");
    CHECK(same_after(0.01f));
    CHECK(same_after(0.01f));
    // This is what renew() is for; and what this file would see of a schedule that were an argument of a launch.
    CHECK_FALSE(same_after(0.001f));
}

TEST_CASE("captured step: nothing inside waits, uploads or takes memory; the device is as before") {
    machine device{quick(5)};
    captured::parts<ht::amp_fp16, machine> p(device);
    captured::ids ids;
    enum class fault { none, item, skipped, set_lr, synchronize, upload, memory, nested } now = fault::none;
    std::vector<std::int32_t> own(4, 1);
    ht::captured_step step{device, [&](const captured::batch& b) {
                               auto loss = p.model.loss(p.tape, b);
                               if (now == fault::item) static_cast<void>(loss.item());
                               p.tape.backward(p.scaler.scale(loss), p.acc);
                               auto grads = p.scaler.unscale(p.acc.take());
                               const auto outcome = p.optimizer.step(grads);
                               if (now == fault::skipped) static_cast<void>(outcome.skipped());
                               if (now == fault::set_lr) p.optimizer.set_lr(1);
                               p.scaler.update();
                               if (now == fault::synchronize) device.synchronize();
                               if (now == fault::upload) p.tape.bring(ht::const_view<std::int32_t, 1>{own.data(), {4}});
                               if (now == fault::memory) ht::tape<machine>(device).make<float>(ht::shape<1>{4}, false);
                               if (now == fault::nested) static_cast<void>(device.capture([] {}));
                               return loss;
                           }};
    step(ids.next(1, 4));
    const auto says = [&](fault f, const char* part) {
        now = f;
        const auto before = p.bytes();
        const auto allocations = device.memory().usage().allocations();
        std::string sentence;
        try {
            step(ids.next(1, 4));
        } catch (const ht::state_error& e) {
            sentence = e.what();
        }
        CAPTURE(sentence);
        CHECK(mentions(sentence, "captured step: "));
        CHECK(mentions(sentence, part));
        CHECK(p.bytes() == before);
        CHECK(device.memory().usage().allocations() == allocations);
        now = fault::none;
        p.tape.clear(), p.acc.discard();
        p.scaler.update(p.scaler.get_scale());  // ends a round that was under way
    };
    says(fault::item, "the host reads device memory");
    says(fault::skipped, "the host reads device memory");
    says(fault::set_lr, "the host reads device memory");
    says(fault::synchronize, "synchronize()");
    says(fault::upload, "the host writes device memory");
    says(fault::memory, "bytes are asked for inside the step");
    says(fault::nested, "captured inside another");
    CHECK(step.captures() == 0);
    // And a step without fault goes on.
    CHECK(step(ids.next(1, 4)) == step_run::captured);
    CHECK(step(ids.next(1, 4)) == step_run::replayed);
    const auto allocations = device.memory().usage().allocations();
    step(ids.next(1, 4));
    CHECK(device.memory().usage().allocations() == allocations);
}

TEST_CASE("captured step: results that would outlive the step are refused") {
    machine device{quick(6)};
    ht::tape tape{device};
    ht::variable<float, 1> kept;
    ht::captured_step step{device, [&](const ht::const_view<float, 1>& x) {
                               kept = tape.make<float>(x.shape(), false);
                               return tape.make<float>(ht::shape<0>{}, false);
                           }};
    const std::vector<float> x(40);
    CHECK_THROWS_AS(step(ht::view{x.data(), ht::shape<1>{40}}), ht::state_error);
    CHECK_THROWS_AS(step(ht::const_view<float, 1>{x.data(), {4}, {2}}), ht::shape_error);
}

/// sum = the sum of x, times the one number of `factor`.
struct weighted_sum {
    const float* x;
    ht::extent count;
    const float* factor;
    float* sum;
    HALFTONE_HD void operator()() const {
        *sum = 0;
        for (ht::extent i = 0; i < count; ++i) *sum += *factor * x[i];
    }
};

TEST_CASE("captured step: views of several types as inputs, of host memory and of the device's, and steps that return nothing") {
    machine device{quick(7)};
    const ht::tensor<float, 1> sum(device.memory(), {1}), on_device(device.memory(), {3});
    ht::captured_step step{device, [&](const ht::const_view<float, 1>& x, const ht::const_view<float, 0>& factor) {
                               device.run(weighted_sum{x.data(), x.size(), factor.data(), sum.data()});
                           }};
    const auto result = [&] {
        float value;
        device.memory().read(&value, sum.data(), sizeof value);
        return value;
    };
    for (int t = 1; t < 6; ++t) {
        const std::vector<float> x{static_cast<float>(t), 2, 3};
        const float factor = 2;
        step(ht::view{x.data(), ht::shape<1>{3}}, ht::view{&factor, ht::shape<0>{}});
        CHECK(result() == static_cast<float>(2 * t + 10));
    }
    CHECK(step.replays() == 3);
    const float factor = 1;
    device.fill(on_device.data(), 3, 7.0f);
    CHECK(step(on_device.const_view(), ht::view{&factor, ht::shape<0>{}}) == step_run::replayed);
    CHECK(result() == 21);
    CHECK_THROWS_AS(step.loss(), ht::state_error);
}

TEST_CASE("captured step: on the CPU each step runs as it is, with the same bits and interface") {
    ht::cpu one{{.threads = 1}}, two{{.threads = 1}};
    captured::parts<ht::amp_fp16, ht::cpu> plain(one), other(two);
    ht::captured_step step{two, [&](const captured::batch& b) { return other.body(b); }};
    captured::ids ids;
    std::uint64_t allocations = 0;
    for (int t = 0; t < 6; ++t) {
        const captured::batch b = ids.next(2, 5);
        const float loss = plain.body(b).item();
        CHECK(step(b) == step_run::uncaptured);
        CHECK(step.loss() == loss);
        CHECK(other.bytes() == plain.bytes());
        if (t == 1) allocations = two.memory().usage().allocations();
    }
    CHECK(two.memory().usage().allocations() == allocations);
    CHECK(step.reason() == "uncaptured: this device runs each step as it is");
    CHECK(step.captures() == 0);
    const std::string corpus(100, 'a');
    ht::language_data data{ht::token_view{corpus}, {.context = 8, .vocabulary = 128}};
    ht::captured_step counts{two, [](const ht::language_batch& b) { CHECK(b.size() == 16); }};
    counts(data.sample(0, 2));
}

}  // namespace
