// SPDX-License-Identifier: MIT
/// \file
/// One training step, for devices that run it uncaptured and for those that capture it: a small GPT with
/// all values of a loop in device memory (loss scale, clipping, schedule, counters).
///
///     captured::parts<ht::amp_fp16, ht::cuda> plain(one), other(two);
///     plain.body(batch);
///     ht::captured_step step{two, [&](const captured::batch& b) { return other.body(b); }};
///
/// The checks of captured steps that any capturing device runs follow below.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/train/captured_step.hpp>

#include "support/random.hpp"

namespace captured {

namespace ht = halftone;

inline constexpr ht::nn::gpt_config config{.vocabulary = 23, .context = 8, .layers = 1, .heads = 2, .width = 32};

inline ht::nn::gpt_config with_dropout(float p) {
    ht::nn::gpt_config c = config;
    c.dropout = p;
    return c;
}

struct batch {
    ht::const_view<std::int32_t, 2> tokens, targets;

    template <class Function>
    batch with_views(const Function& f) const {
        return {f(tokens), f(targets)};
    }
};

/// Ids in host memory, different ones in each step.
class ids {
  public:
    batch next(ht::extent rows, ht::extent time) {
        all_ = support::random(++seed_).indices(static_cast<std::size_t>(rows * time + 1),
                                                static_cast<int>(config.vocabulary));
        return {{all_.data(), {rows, time}}, {all_.data() + 1, {rows, time}}};
    }

  private:
    std::uint64_t seed_ = 0;
    std::vector<std::int32_t> all_;
};

template <class P, class Device>
struct parts {
    using model_type = ht::nn::gpt<P>;
    Device& device;
    ht::nn::gpt_config its_config;
    model_type model{device, its_config, 3};
    ht::adamw<Device, model_type> optimizer{
        device, model, {.lr = 1e-2, .weight_decay = 0.1}, {{"*.bias", {.weight_decay = 0}}}};
    // At this scale the fp16 gradients of some steps overflow, and in other steps the scale grows.
    ht::grad_scaler<Device> scaler{
        device, {.init_scale = 0x1p22f, .growth_interval = 2, .enabled = ht::model_needs_scaling<model_type>}};
    ht::accumulator<ht::through_scaler, ht::types<model_type>> acc{model};
    ht::tape<Device> tape{device};
    std::optional<ht::outlier_guard<Device>> guard;
    float max_norm = 1;

    explicit parts(Device& d, float dropout = 0) : device(d), its_config(with_dropout(dropout)) {
        optimizer.set_schedule({.shape = ht::schedule::linear, .total_steps = 40, .warmup_steps = 3});
    }

    /// Micro-batches of one row each.
    ht::variable<float, 0> body(const batch& b) {
        const ht::extent rows = b.tokens.extent_of(0), time = b.tokens.extent_of(1);
        ht::variable<float, 0> last;
        for (ht::extent row = 0; row < rows; ++row) {
            const ht::shape<2> one{1, time};
            last = {};
            last = model.loss(tape, batch{{b.tokens.data() + row * time, one}, {b.targets.data() + row * time, one}});
            tape.backward(scaler.scale(last / static_cast<float>(rows)), acc);
            if (guard) guard->add(last);
        }
        update();
        return last;
    }
    void update() {
        auto grads = scaler.unscale(acc.take());
        if (guard) guard->watch(grads);
        ht::clip_grad_norm(grads, max_norm);
        optimizer.step(grads);
        scaler.update();
    }

    /// All bytes that a step may change, read from the device's memory.
    std::vector<std::byte> bytes() const {
        std::vector<std::byte> all;
        const ht::store& s = model.parameters();
        const auto add = [&](const std::byte* data, std::size_t n) {
            all.resize(all.size() + n);
            s.memory().read(all.data() + all.size() - n, data, n);
        };
        for (std::size_t g = 0; g < s.groups().size(); ++g) {
            add(s.groups()[g].master.data(), s.groups()[g].master.bytes());
            add(s.groups()[g].copy.data(), s.groups()[g].copy.bytes());
            for (int which = 0; which < 2; ++which)
                add(optimizer.moment(which, g).data(), optimizer.moment(which, g).size());
        }
        const auto counts = optimizer.state();
        const auto scale = scaler.state();
        for (const double x : {static_cast<double>(counts.steps), static_cast<double>(counts.skipped),
                               static_cast<double>(counts.skips.outlier), counts.lr, optimizer.last_lr(),
                               static_cast<double>(scale.scale), static_cast<double>(scale.growth_tracker),
                               static_cast<double>(scale.overflows)}) {
            const auto* data = reinterpret_cast<const std::byte*>(&x);
            all.insert(all.end(), data, data + sizeof x);
        }
        return all;
    }
};

inline bool mentions(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// Uncaptured steps on one device and captured ones on another, while rates, schedules and the loss scale change, shapes
/// alternate, and outliers are skipped.
template <class Device>
void check_same_bits(Device& one, Device& two) {
    using ht::step_run;
    // Each pass has different dropout masks, in replays too.
    parts<ht::amp_fp16, Device> plain(one, 0.25f), other(two, 0.25f);
    // A guard that treats many of the steps as outliers.
    const ht::outlier_options strict{
        .factor = 1, .window = 4, .warm_up = 3, .least_deviation = 0, .most_in_a_row = 1, .of = ht::outlier_of::both};
    plain.guard.emplace(one, strict), other.guard.emplace(two, strict);
    ht::captured_step step{two, [&](const batch& b) { return other.body(b); }};
    ids ids;
    std::vector<step_run> runs;
    std::vector<float> scales;
    std::uint32_t passes = 0;
    for (int t = 0; t < 14; ++t) {
        CAPTURE(t);
        const auto change = [&](auto& p) {
            if (t == 6) p.optimizer.set_lr(3e-3);
            if (t == 7) p.optimizer.set_schedule({.shape = ht::cosine, .total_steps = 20, .final_ratio = 0.1});
            if (t == 11) p.scaler.update(1024.0f);
            if (t == 12) {
                auto s = p.scaler.state();
                s.growth_interval = 1;
                p.scaler.load(s);
            }
        };
        change(plain), change(other);
        // From the eighth step on, two shapes alternate.
        const batch b = t >= 8 && t % 2 == 0 ? ids.next(1, 8) : ids.next(2, 5);
        const float loss = plain.body(b).item();
        runs.push_back(step(b));
        CHECK(step.loss() == loss);
        CHECK(other.bytes() == plain.bytes());
        passes += static_cast<std::uint32_t>(b.tokens.extent_of(0));
        CHECK(plain.tape.random_state().pass == passes);
        CHECK(other.tape.random_state().pass == passes);
        CHECK(other.optimizer.last_step_skipped() == plain.optimizer.last_step_skipped());
        scales.push_back(plain.scaler.get_scale());
    }
    CHECK(runs[0] == step_run::uncaptured);
    CHECK(runs[1] == step_run::captured);
    for (int t = 2; t < 8; ++t) CHECK(runs[static_cast<std::size_t>(t)] == step_run::replayed);
    CHECK(runs[8] == step_run::uncaptured);
    CHECK(runs[13] == step_run::replayed);
    CHECK(runs[12] == step_run::replayed);
    // Overflows and outliers did occur.
    CHECK(other.optimizer.skips().infinity + other.optimizer.skips().not_a_number > 2);
    CHECK(other.optimizer.skips().outlier > 0);
    CHECK(other.optimizer.steps() > 5);
    bool grew = false;
    for (std::size_t i = 1; i < scales.size(); ++i) grew = grew || scales[i] > scales[i - 1];
    CHECK(grew);
}

/// When a step is captured, and the reasons that it gives.
template <class Device>
void check_reasons(Device& device) {
    using ht::step_run;
    parts<ht::amp_fp16, Device> p(device);
    int host_calls = 0;
    ht::captured_step step{device,
                           [&](const batch& b) {
                               ++host_calls;
                               return p.body(b);
                           },
                           {.most_graphs = 2}};
    CHECK_THROWS_AS(step.loss(), ht::state_error);
    ids ids;
    const auto run = [&](ht::extent rows, ht::extent time) { return step(ids.next(rows, time)); };

    CHECK(run(1, 8) == step_run::uncaptured);
    CHECK(step.reason() == "uncaptured: a step of (1, 8), (1, 8); the first one");
    CHECK(run(1, 8) == step_run::captured);
    CHECK(step.reason() == "captured: a step of (1, 8), (1, 8)");
    CHECK(run(1, 8) == step_run::replayed);
    CHECK(host_calls == 2);

    // Another shape, twice, and the first again: both captures are kept.
    CHECK(run(1, 4) == step_run::uncaptured);
    CHECK(step.reason() == "uncaptured: a step of (1, 4), (1, 4); the one before was of (1, 8), (1, 8)");
    CHECK(run(1, 4) == step_run::captured);
    CHECK(run(1, 8) == step_run::replayed);
    CHECK(run(1, 4) == step_run::replayed);
    // A third shape: there is room for two captures.
    CHECK(run(1, 3) == step_run::uncaptured);
    CHECK(step.reason() ==
          "uncaptured: a step of (1, 3), (1, 3); the one before was of (1, 4), (1, 4), and (1, 8), (1, 8) made room "
          "for it");
    CHECK(run(1, 4) == step_run::replayed);
    CHECK(run(1, 8) == step_run::uncaptured);

    // Memory that moves: scratch memory that had to grow for other work.
    CHECK(run(1, 8) == step_run::captured);
    CHECK(run(1, 8) == step_run::replayed);
    { const ht::workspace::lease large(device.scratch(), std::size_t{1} << 24); }
    CHECK(run(1, 8) == step_run::uncaptured);
    CHECK(step.reason() == "uncaptured: a step of (1, 8), (1, 8); scratch memory has moved");
    CHECK(run(1, 8) == step_run::captured);
    CHECK(step.reason() == "captured again: a step of (1, 8), (1, 8); scratch memory has moved");
    CHECK(run(1, 8) == step_run::replayed);
    // Scratch memory that needs a second block while the first is in use: blocks are joined when nothing is in use.
    {
        const ht::workspace::lease first(device.scratch(), 64), second(device.scratch(), std::size_t{1} << 25);
    }
    CHECK(run(1, 8) == step_run::replayed);
    // And the tape's memory, which grew for other work.
    CHECK_NOTHROW(p.tape.template make<float>(ht::shape<1>{1 << 20}, false));
    CHECK(run(1, 8) == step_run::replayed);
    CHECK_NOTHROW(p.tape.template make<float>(ht::shape<1>{1}, false));
    CHECK(run(1, 8) == step_run::uncaptured);
    CHECK(mentions(step.reason(), "the memory of results has moved"));
    CHECK(run(1, 8) == step_run::captured);

    // Host values that the step reads stay those of the capture, until renew().
    step.renew("another limit of clipping");
    CHECK(run(1, 8) == step_run::captured);
    CHECK(step.reason() == "captured again: a step of (1, 8), (1, 8); another limit of clipping");
    CHECK(step.captures() == 6);
    CHECK_THROWS_AS(ht::captured_step(device, [](const batch&) {}, {.most_graphs = 0}), ht::argument_error);
}

/// Changes of values in host memory take effect only through renew().
template <class Device>
void check_host_values(Device& one, Device& two) {
    parts<ht::amp_fp16, Device> plain(one), other(two);
    for (auto* p : {&plain, &other}) p->scaler.update(1024.0f);  // with this scale no step is skipped
    ht::captured_step step{two, [&](const batch& b) { return other.body(b); }};
    ids ids;
    const auto same_after = [&](float max_norm) {
        plain.max_norm = other.max_norm = max_norm;
        const batch b = ids.next(1, 4);
        plain.body(b), step(b);
        return plain.bytes() == other.bytes();
    };
    for (int t = 0; t < 4; ++t) CHECK(same_after(1));
    step.renew("max_norm");
    CHECK(same_after(0.01f));
    CHECK(same_after(0.01f));
    // Without renew() the old value is used. The tests above would fail in this way if a schedule were an argument of a launch.
    CHECK_FALSE(same_after(0.001f));
}

/// A step that waits, uploads or allocates is refused.
template <class Device>
void check_refusals(Device& device) {
    using ht::step_run;
    parts<ht::amp_fp16, Device> p(device);
    ids ids;
    enum class fault { none, item, skipped, set_lr, synchronize, upload, memory, nested } now = fault::none;
    std::vector<std::int32_t> own(4, 1);
    ht::captured_step step{device, [&](const batch& b) {
                               auto loss = p.model.loss(p.tape, b);
                               if (now == fault::item) static_cast<void>(loss.item());
                               p.tape.backward(p.scaler.scale(loss), p.acc);
                               auto grads = p.scaler.unscale(p.acc.take());
                               const auto outcome = p.optimizer.step(grads);
                               if (now == fault::skipped) static_cast<void>(outcome.skipped());
                               if (now == fault::set_lr) p.optimizer.set_lr(1);
                               p.scaler.update();
                               if (now == fault::synchronize) device.synchronize();
                               if (now == fault::upload) p.tape.to_device(ht::const_view<std::int32_t, 1>{own.data(), {4}});
                               if (now == fault::memory)
                                   ht::tape<Device>(device).template make<float>(ht::shape<1>{4}, false);
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
        } catch (const ht::capture_error& e) {
            sentence = e.what();
        }
        CAPTURE(sentence);
        CHECK(mentions(sentence, "captured step: "));
        CHECK(mentions(sentence, part));
        CHECK(p.bytes() == before);
        CHECK(device.memory().usage().allocations() == allocations);
        now = fault::none;
        p.tape.clear(), p.acc.discard();
        p.scaler.update(p.scaler.get_scale());  // ends the round of the abandoned step
    };
    says(fault::item, "the host reads device memory");
    says(fault::skipped, "the host reads device memory");
    says(fault::set_lr, "the host reads device memory");
    says(fault::synchronize, "synchronize()");
    says(fault::upload, "the host writes device memory");
    says(fault::memory, "bytes are requested inside the step");
    says(fault::nested, "captured inside another");
    CHECK(step.captures() == 0);
    // A step without a fault works afterwards.
    CHECK(step(ids.next(1, 4)) == step_run::captured);
    CHECK(step(ids.next(1, 4)) == step_run::replayed);
    const auto allocations = device.memory().usage().allocations();
    step(ids.next(1, 4));
    CHECK(device.memory().usage().allocations() == allocations);
}

}  // namespace captured
