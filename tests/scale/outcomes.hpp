// SPDX-License-Identifier: MIT
/// \file
/// The outcome that a step reports, on any device.
///
///     outcomes::check(device);
#pragma once

#include <cstring>
#include <limits>

#include <doctest/doctest.h>

#include <halftone/optim/clip.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "optim/small_model.hpp"

namespace outcomes {

namespace ht = halftone;
using ht::step_result;

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float nan = std::numeric_limits<float>::quiet_NaN();

template <class Device>
struct trained {
    using model_type = small::model<ht::amp_fp16>;

    explicit trained(Device& d, std::vector<ht::parameter_group> groups = {})
        : model(d, 3),
          optimizer(d, model, ht::sgd_options{.lr = 0.5, .momentum = 0.5, .weight_decay = 0.5}, std::move(groups)),
          acc(model) {}

    /// Gradients of 1, but for the first and the last one.
    auto take(const ht::grad_scaler<Device>& scaler, float first = 1, float last = 1) {
        tape.gradients = [=](std::size_t entry, std::size_t i) {
            return entry == 0 && i == 0 ? first : entry == 3 && i == 2 ? last : 1.0f;
        };
        tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
        return acc.take();
    }
    step_result step(ht::grad_scaler<Device>& scaler, float first = 1, float last = 1) {
        auto grads = scaler.unscale(take(scaler, first, last));
        return optimizer.step(grads).result();
    }
    std::vector<float> weights() { return small::master_of(model.fc1.weight); }

    model_type model;
    ht::sgd<Device, model_type> optimizer;
    ht::accumulator<ht::through_scaler, ht::types<model_type>> acc;
    small::tape tape;
};

/// Each optimizer by its own gradients; the scale by all of them.
template <class Device>
void check_kinds(Device& device) {
    ht::grad_scaler scaler{device, {.init_scale = 1024}};
    trained<Device> a{device}, b{device}, c{device};
    CHECK(a.step(scaler, infinity) == step_result::infinity);
    CHECK(b.step(scaler, -infinity, nan) == step_result::not_a_number);
    CHECK(c.step(scaler) == step_result::taken);
    CHECK(a.optimizer.last_result() == step_result::infinity);
    scaler.update();
    CHECK(scaler.get_scale() == 512);
    CHECK(scaler.overflows() == 1);
    CHECK(a.step(scaler, nan, infinity) == step_result::not_a_number);
    scaler.update();
    CHECK(a.step(scaler) == step_result::taken);
    CHECK(a.optimizer.last_result() == step_result::taken);
    CHECK(a.optimizer.skips() == ht::skip_counts{.infinity = 1, .not_a_number = 1});
    CHECK(a.optimizer.skipped_steps() == 2);
    CHECK(b.optimizer.skips() == ht::skip_counts{.not_a_number = 1});
    CHECK(c.optimizer.skips() == ht::skip_counts{});

    // A scale set by hand in place of update() counts the overflow all the same.
    scaler.update();
    b.step(scaler, infinity);
    scaler.update(64.0f);
    CHECK(scaler.overflows() == 3);
    CHECK(scaler.get_scale() == 64);

    const ht::optimizer_state saved = a.optimizer.state();
    CHECK(saved.skips == a.optimizer.skips());
    c.optimizer.load(saved);
    CHECK(c.optimizer.skips() == saved.skips);
    CHECK(c.optimizer.steps() == 1);
    c.optimizer.load({.steps = 7, .skipped = 3, .lr = 0.5});  // one that knows no reasons
    CHECK(c.optimizer.skips() == ht::skip_counts{});
    CHECK_THROWS_AS(c.optimizer.load({.steps = 7, .skipped = 3, .lr = 0.5, .skips = {.outlier = 4}}),
                    ht::argument_error);
    CHECK_THROWS_AS(c.optimizer.load({.steps = 7, .skipped = 3, .lr = 0.5, .skips = {.nothing = -1}}),
                    ht::argument_error);
}

/// No decay, no momentum and no count where there are no gradients, as in PyTorch, whose parameters then have none.
template <class Device>
void check_nothing(Device& device) {
    using model_type = typename trained<Device>::model_type;
    ht::grad_scaler scaler{device};
    model_type a(device, 3), b(device, 3);
    const ht::sgd_options options{.lr = 0.5, .momentum = 0.5, .weight_decay = 0.5};
    ht::sgd for_a{device, a, options}, for_b{device, b, options};
    ht::accumulator acc{a, b};
    small::tape tape;
    tape.gradients = [](std::size_t, std::size_t) { return 1.0f; };
    const auto a_before = small::master_of(a.fc1.weight), b_before = small::master_of(b.fc1.weight);
    tape.backward(scaler.scale(small::loss{}), acc, a.parameters());
    auto grads = scaler.unscale(acc.take());
    CHECK(for_a.step(grads).result() == step_result::taken);
    CHECK(for_b.step(grads).result() == step_result::nothing);
    CHECK_THROWS_AS(for_b.step(grads), ht::state_error);
    scaler.update();
    CHECK(small::master_of(a.fc1.weight) != a_before);
    CHECK(small::master_of(b.fc1.weight) == b_before);
    CHECK(for_b.steps() == 0);
    CHECK(for_b.skips() == ht::skip_counts{.nothing = 1});
    CHECK(scaler.overflows() == 0);

    trained<Device> still{device, {{"*", ht::frozen}}};
    CHECK(still.step(scaler) == step_result::nothing);
    scaler.update();
}

/// Gradients that are finite in memory, but not after unscaling.
template <class Device>
void check_after_unscale(Device& device) {
    {
        // 2^115 over 2^-20.
        ht::grad_scaler scaler{device, {.init_scale = 0x1p-20f}};
        trained<Device> t{device};
        CHECK(t.step(scaler, 0x1p115f) == step_result::taken);
        scaler.update();
        const auto weights = t.weights();
        // Twice 2^127 is 2^108 in memory, and 2^128 after unscaling.
        t.tape.gradients = [](std::size_t entry, std::size_t i) { return entry == 0 && i == 0 ? 0x1p127f : 1.0f; };
        for (int micro = 0; micro < 2; ++micro)
            t.tape.backward(scaler.scale(small::loss{}), t.acc, t.model.parameters());
        auto grads = scaler.unscale(t.acc.take());
        CHECK(t.optimizer.step(grads).result() == step_result::infinity);
        CHECK(t.weights() == weights);
    }
    {
        // Without a minimum a scale reaches 0, as PyTorch's does; then 0 * (1 / 0) is no number, and no step is taken.
        ht::grad_scaler scaler{device, {.init_scale = 0x1p-126f, .backoff_factor = 0x1p-30, .min_scale = 0}};
        trained<Device> t{device};
        const auto weights = t.weights();
        CHECK(t.step(scaler, infinity) == step_result::infinity);
        scaler.update();
        CHECK(scaler.get_scale() == 0);
        auto grads = scaler.unscale(t.take(scaler));
        CHECK(t.optimizer.step(grads).result() == step_result::infinity);
        scaler.update();
        CHECK(t.weights() == weights);
        // By default it stays where it has an inverse.
        ht::grad_scaler guarded{device, {.init_scale = 0x1p-120f, .backoff_factor = 0x1p-30}};
        t.step(guarded, infinity), guarded.update();
        CHECK(guarded.get_scale() == 0x1p-126f);
        CHECK(t.step(guarded) == step_result::taken);
    }
    {
        // Written by hand and marked as changed: checked again. Clipping does not hide it; the scale stays.
        ht::grad_scaler scaler{device};
        trained<Device> t{device};
        for (const float odd : {infinity, nan}) {
            auto grads = scaler.unscale(t.take(scaler));
            using storage = ht::storage_signature<ht::amp_fp16, ht::op::linear>;
            ht::store& parameters = t.model.parameters();
            auto* const first = grads.slabs(parameters).template group<storage>(parameters.entries()[0].group).data();
            parameters.memory().write(first, &odd, sizeof odd);
            grads.changed();
            ht::clip_grad_value(grads, 1);
            CHECK(t.optimizer.step(grads).result() ==
                  (odd == infinity ? step_result::infinity : step_result::not_a_number));
            scaler.update();
        }
        CHECK(scaler.get_scale() == 65536);
        CHECK(scaler.overflows() == 0);
    }
}

template <class Device>
void check(Device& device) {
    check_kinds(device);
    check_nothing(device);
    check_after_unscale(device);
}

}  // namespace outcomes
