// SPDX-License-Identifier: MIT
/// \file
/// One training step, written once, for a device that runs it as it is and for one that captures it: a small GPT with all
/// that lies on the device of a loop (loss scale, clipping, schedule, counters).
///
///     captured::parts<ht::amp_fp16, ht::cuda> plain(one), other(two);
///     plain.body(batch);
///     ht::captured_step step{two, [&](const captured::batch& b) { return other.body(b); }};
#pragma once

#include <cstddef>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/train/captured_step.hpp>

#include "support/random.hpp"

namespace captured {

namespace ht = halftone;

inline constexpr ht::nn::gpt_config config{.vocabulary = 23, .context = 8, .layers = 1, .heads = 2, .width = 32};

struct batch {
    ht::const_view<std::int32_t, 2> tokens, targets;

    template <class Function>
    batch with_views(const Function& f) const {
        return {f(tokens), f(targets)};
    }
};

/// Ids in host memory, others in each step.
class ids {
  public:
    batch next(ht::extent rows, ht::extent time) {
        all_ = support::random(++seed_).indices(static_cast<std::size_t>(rows * time + 1), static_cast<int>(config.vocabulary));
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
    model_type model{device, config, 3};
    ht::adamw<Device, model_type> optimizer{device, model, {.lr = 1e-2, .weight_decay = 0.1}, {{"*.bias", {.weight_decay = 0}}}};
    // At this height some gradients of fp16 overflow, and others let it grow.
    ht::grad_scaler<Device> scaler{device, {.init_scale = 0x1p22f, .growth_interval = 2, .enabled = ht::model_needs_scaling<model_type>}};
    ht::accumulator<ht::through_scaler, ht::types<model_type>> acc{model};
    ht::tape<Device> tape{device};
    float max_norm = 1;

    explicit parts(Device& d) : device(d) { optimizer.set_schedule({.shape = ht::schedule::linear, .total_steps = 40, .warmup_steps = 3}); }

    /// Micro-batches of one row each.
    ht::variable<float, 0> body(const batch& b) {
        const ht::extent rows = b.tokens.extent_of(0), time = b.tokens.extent_of(1);
        ht::variable<float, 0> last;
        for (ht::extent row = 0; row < rows; ++row) {
            const ht::shape<2> one{1, time};
            last = {};
            last = model.loss(tape, batch{{b.tokens.data() + row * time, one}, {b.targets.data() + row * time, one}});
            tape.backward(scaler.scale(last / static_cast<float>(rows)), acc);
        }
        update();
        return last;
    }
    void update() {
        auto grads = scaler.unscale(acc.take());
        ht::clip_grad_norm(grads, max_norm);
        optimizer.step(grads);
        scaler.update();
    }

    /// All that a step may change, byte by byte, out of the device's memory.
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
            for (int which = 0; which < 2; ++which) add(optimizer.moment(which, g).data(), optimizer.moment(which, g).size());
        }
        const auto counts = optimizer.state();
        const auto scale = scaler.state();
        for (const double x : {static_cast<double>(counts.steps), static_cast<double>(counts.skipped), counts.lr, optimizer.last_lr(), static_cast<double>(scale.scale),
                               static_cast<double>(scale.growth_tracker), static_cast<double>(scale.overflows)}) {
            const auto* data = reinterpret_cast<const std::byte*>(&x);
            all.insert(all.end(), data, data + sizeof x);
        }
        return all;
    }
};

}  // namespace captured
