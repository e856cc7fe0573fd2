// SPDX-License-Identifier: MIT
/// \file
/// Scripts of gradient sizes and losses, for an outlier_guard on any device.
///
///     outliers::check_scripts(device);
#pragma once

#include <cstddef>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include <halftone/autodiff/engine/tape.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/scale/grad_scaler.hpp>
#include <halftone/scale/outlier_guard.hpp>

#include "optim/small_model.hpp"

namespace outliers {

namespace ht = halftone;

template <class Device>
struct guarded {
    using model_type = small::model<ht::amp_fp16>;

    guarded(Device& d, const ht::outlier_options& options)
        : device(&d), model(d, 3), optimizer(d, model, {.lr = 0.125}), scaler(d, {.growth_interval = 4}), acc(model), guard(d, options), own_tape(d) {}

    auto take(float size) {
        tape.gradients = [size](std::size_t entry, std::size_t i) { return entry == 2 && i == 1 ? size : 0.0f; };
        tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
        return scaler.unscale(acc.take());
    }
    /// A step with a gradient of this norm, and the losses of two micro-batches whose mean is `loss`.
    ht::step_result step(float size, float loss = 1) {
        auto grads = take(size);
        if (guard.options().of != ht::outlier_of::norm) {
            for (const float of_one : {loss - 0.25f, loss + 0.25f}) {
                guard.add(own_tape.constant(ht::const_view<float, 0>(&of_one, ht::shape<0>{})));
            }
            own_tape.clear();
        }
        guard.watch(grads);
        norm = ht::clip_grad_norm(grads, 1000).value();
        const ht::step_result result = optimizer.step(grads).result();
        scaler.update();
        return result;
    }
    /// One letter a step, 's' for an outlier and 'i' for an overflow.
    std::string steps(std::initializer_list<float> sizes) {
        std::string trace;
        for (const float size : sizes) {
            const ht::step_result r = step(size);
            trace += r == ht::step_result::taken ? '.' : r == ht::step_result::outlier ? 's' : 'i';
        }
        return trace;
    }

    Device* device;
    model_type model;
    ht::sgd<Device, model_type> optimizer;
    ht::grad_scaler<Device> scaler;
    ht::accumulator<ht::through_scaler, ht::types<model_type>> acc;
    ht::outlier_guard<Device> guard;
    small::tape tape;
    float norm = 0;

    ht::tape<Device> own_tape;
};

template <class Device>
guarded(Device&, const ht::outlier_options&) -> guarded<Device>;

template <class Device>
void check_scripts(Device& device) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    {
        // The warm-up judges nothing. Then values of 1 +- 1%; an overflow is not an outlier, and is not in the window.
        guarded run(device, {.window = 8, .warm_up = 3});
        CHECK(run.steps({9, 1, 1, 1}) == "....");
        guarded calm(device, {.window = 8, .warm_up = 3});
        CHECK(calm.steps({1, 1, 1, 1.05f, 7, 1.07f, infinity, 1, 0, 7}) == "....s.i..s");
        CHECK(calm.optimizer.steps() == 7);
        CHECK(calm.optimizer.skipped_steps() == 3);
        CHECK(calm.optimizer.skips() == ht::skip_counts{.infinity = 1, .outlier = 2});
        CHECK(calm.guard.outliers() == 2);
        // The scale backed off once, for the infinity; outliers count as good steps for it.
        CHECK(calm.scaler.overflows() == 1);
        CHECK(calm.scaler.get_scale() == 65536);
        CHECK(calm.scaler.state().growth_tracker == 3);
    }
    {
        // A skipped step changes nothing.
        guarded run(device, {.window = 4, .warm_up = 2});
        run.steps({1, 1});
        const auto before = small::master_of(run.model.fc2.weight);
        CHECK(run.steps({2}) == "s");
        CHECK(small::master_of(run.model.fc2.weight) == before);
        CHECK(run.steps({1}) == ".");
        CHECK(small::master_of(run.model.fc2.weight) != before);
    }
    {
        // A lasting change of the level is accepted, and is the reference from then on.
        guarded run(device, {.window = 4, .warm_up = 2, .most_in_a_row = 3});
        CHECK(run.steps({1, 1, 5, 5, 5, 5, 5, 5, 1, 25}) == "..sss....s");
    }
    {
        // Judged by the mean of the losses; a NaN among them is an outlier from the first step on.
        guarded run(device, {.window = 4, .warm_up = 2, .most_in_a_row = 1, .of = ht::outlier_of::loss});
        constexpr float nan = std::numeric_limits<float>::quiet_NaN();
        CHECK(run.step(1, nan) == ht::step_result::outlier);
        CHECK(run.step(1, infinity) == ht::step_result::outlier);
        CHECK(run.step(1, nan) == ht::step_result::outlier);
        const float dropped = 1000;
        run.guard.add(run.own_tape.constant(ht::const_view<float, 0>(&dropped, ht::shape<0>{})));
        run.guard.discard();
        CHECK(run.step(1, 2) == ht::step_result::taken);
        CHECK(run.step(100, 2) == ht::step_result::taken);
        CHECK(run.step(1, 2.0625f) == ht::step_result::taken);
        CHECK(run.step(1, 3) == ht::step_result::outlier);
        CHECK(run.step(infinity, 3) == ht::step_result::infinity);
        CHECK(run.step(1, 1) == ht::step_result::taken);
    }
    {
        guarded run(device, {.window = 4, .warm_up = 2, .of = ht::outlier_of::both});
        CHECK(run.step(1, 2) == ht::step_result::taken);
        CHECK(run.step(1, 2) == ht::step_result::taken);
        CHECK(run.step(3, 2) == ht::step_result::outlier);
        CHECK(run.step(1, 3) == ht::step_result::outlier);
        CHECK(run.step(1, 2) == ht::step_result::taken);
    }
}

}  // namespace outliers
