// SPDX-License-Identifier: MIT
#include <limits>

#include <doctest/doctest.h>

#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/static_scaler.hpp>

#include "optim/small_model.hpp"

namespace scale_static_scaler_tests {

namespace ht = halftone;

/// The loop of rung 3, whichever scaler it is given: the parameters after three steps.
template <class Scaler>
float train(ht::cpu& device, Scaler& scaler, float worst = 1.0f) {
    small::model<ht::amp_bf16> model{device};
    ht::adamw optimizer{device, model, {.lr = 0.01}};
    ht::accumulator acc{model};
    small::tape tape;
    for (int step = 0; step < 3; ++step) {
        tape.gradients = [=](std::size_t, std::size_t i) { return step == 1 && i == 2 ? worst : 0.125f; };
        for (int micro = 0; micro < 2; ++micro) tape.backward(scaler.scale(small::loss{} / 2), acc, model.parameters());
        auto grads = scaler.unscale(acc.take());
        ht::clip_grad_norm(grads, 1.0f);
        optimizer.step(grads);
        scaler.update();
    }
    return model.fc1.weight.master()(1) + static_cast<float>(optimizer.skipped_steps());
}

TEST_CASE("scalers are exchanged by type") {
    ht::cpu device{{.threads = 1}};
    ht::grad_scaler dynamic{device};
    ht::static_scaler constant{device, {.scale = 256}};
    ht::no_scaling none{device};
    const float expected = train(device, none);
    CHECK(train(device, dynamic) == expected);
    CHECK(train(device, constant) == expected);
    CHECK(none.get_scale() == 1);
    CHECK(constant.get_scale() == 256);
}

/// The functions of a scaler other than those of training, which are the same for each kind.
template <class Scaler>
ht::scaler_state keep(Scaler& scaler) {
    const ht::scaler_state state = scaler.state();
    scaler.load(state);
    if (scaler.is_enabled()) scaler.update(scaler.get_scale() / 2);
    return state;
}

TEST_CASE("scalers: state, scale by hand and switch are exchanged, too") {
    ht::cpu device{{.threads = 1}};
    ht::grad_scaler dynamic{device};
    ht::static_scaler constant{device, {.scale = 256}}, off{device, {.scale = 256, .enabled = false}};
    ht::no_scaling none{device};
    train(device, constant, std::numeric_limits<float>::infinity());
    CHECK(keep(dynamic).scale == 65536);
    CHECK(dynamic.get_scale() == 32768);
    const ht::scaler_state state = keep(constant);
    CHECK((state.enabled && state.scale == 256 && state.overflows == 1));
    CHECK(constant.get_scale() == 128);
    CHECK(constant.overflows() == 1);
    CHECK(constant.options().scale == 128);
    CHECK_FALSE(keep(off).enabled);
    CHECK_FALSE(keep(none).enabled);
    CHECK(off.get_scale() == 1);
    CHECK(train(device, off) == train(device, none));
    off.update(), off.update(8.0f), none.update(8.0f);
    CHECK(off.get_scale() == 1);
    CHECK_THROWS_AS(constant.load(off.state()), ht::state_error);
    CHECK_THROWS_AS(constant.load({.scale = 0, .enabled = true}), ht::argument_error);
    CHECK_THROWS_AS(constant.load({.scale = 8, .overflows = -1, .enabled = true}), ht::argument_error);
    CHECK_THROWS_AS(constant.update(0.0f), ht::argument_error);
    CHECK(constant.get_scale() == 128);
    constant.load(state);
    CHECK(constant.get_scale() == 256);
}

TEST_CASE("static_scaler: skips steps, and keeps its scale") {
    ht::cpu device{{.threads = 1}};
    ht::static_scaler scaler{device};
    train(device, scaler, std::numeric_limits<float>::infinity());
    CHECK(scaler.get_scale() == 1024);
    CHECK(scaler.overflows() == 1);
    CHECK_THROWS_AS(scaler.update(), ht::state_error);
    CHECK_THROWS_AS((ht::static_scaler{device, {.scale = 0}}), ht::argument_error);
}

TEST_CASE("no_scaling: the step checks that gradients are finite, unless a norm was computed") {
    ht::cpu device{{.threads = 1}};
    small::model<ht::amp_bf16> model{device};
    ht::adamw optimizer{device, model};
    ht::accumulator acc{model};
    ht::no_scaling scaler{device};
    small::tape tape;
    tape.gradients = [](std::size_t, std::size_t) { return std::numeric_limits<float>::infinity(); };
    tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
    auto measured = scaler.unscale(acc.take());
    ht::clip_grad_norm(measured, 1.0f);
    CHECK(optimizer.step(measured).skipped());
    tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
    auto unread = scaler.unscale(acc.take());
    CHECK(optimizer.step(unread).skipped());
    CHECK(optimizer.steps() == 0);
}

}  // namespace scale_static_scaler_tests
