// SPDX-License-Identifier: MIT
/// \file
/// Steps with finite gradients that are too large for the moments of an optimizer's rule, on any device.
///
///     large_gradients::check(device);
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/optim/lion.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/scale/grad_scaler.hpp>
#include <halftone/scale/outlier_guard.hpp>

#include "optim/small_model.hpp"

namespace large_gradients {

namespace ht = halftone;
using ht::step_result;

inline constexpr float largest = std::numeric_limits<float>::max();
inline constexpr float infinity = std::numeric_limits<float>::infinity();

template <class Device, class P>
ht::adamw<Device, small::model<P>> make_adamw(Device& d, small::model<P>& m) {
    return {d, m, ht::adamw_options{.lr = 0.01}};
}
template <class Device, class P>
ht::sgd<Device, small::model<P>> make_sgd(Device& d, small::model<P>& m, double momentum) {
    return {d, m, ht::sgd_options{.lr = 0.01, .momentum = momentum}};
}

template <class Device, class P>
ht::lion<Device, small::model<P>> make_lion(Device& d, small::model<P>& m) {
    return {d, m, ht::lion_options{.lr = 0.01}};
}

/// All bytes that a step changes.
template <class Device, class P>
std::vector<std::byte> bytes_of(small::model<P>& model, const auto& optimizer) {
    std::vector<std::byte> all;
    const auto add = [&](const std::byte* data, std::size_t n) {
        const std::vector<std::byte> more = small::bytes_at(model.parameters(), data, n);
        all.insert(all.end(), more.begin(), more.end());
    };
    for (std::size_t g = 0; g < model.parameters().groups().size(); ++g) {
        const ht::store::group& group = model.parameters().groups()[g];
        add(group.master.data(), group.master.bytes());
        add(group.copy.data(), group.copy_bytes == 0 ? 0 : group.copy.bytes());
        for (int which = 0; which < optimizer.moments(); ++which)
            add(optimizer.moment(which, g).data(), optimizer.moment(which, g).size());
    }
    return all;
}
/// Whether all moments are finite. State is their type.
template <class State, class P>
bool are_finite(small::model<P>& model, const auto& optimizer) {
    for (std::size_t g = 0; g < model.parameters().groups().size(); ++g) {
        for (int which = 0; which < optimizer.moments(); ++which) {
            const auto moment = optimizer.moment(which, g);
            const auto bytes = small::bytes_at(model.parameters(), moment.data(), moment.size());
            std::vector<State> values(bytes.size() / sizeof(State));
            if (!values.empty()) std::memcpy(static_cast<void*>(values.data()), bytes.data(), bytes.size());
            for (const State v : values) {
                if (!ht::is_finite(v)) return false;
            }
        }
    }
    return true;
}

struct clipping {
    float by_norm = infinity, by_value = infinity;
};
inline clipping by_norm(float most) { return {most, infinity}; }

/// Steps of a rule whose moments can hold gradients up to `most`: steps with larger ones are skipped and change nothing; steps
/// with smaller ones are taken, and moments stay finite after any number of them.
template <class State, class P, class Device, class Make>
void check_rule(Device& device, const Make& make, float most) {
    for (const float scale : {1.0f, 65536.0f, 0x1p-20f}) {
        CAPTURE(scale);
        small::model<P> model{device};
        auto optimizer = make(device, model);
        ht::grad_scaler scaler{device, {.init_scale = scale}};
        ht::accumulator acc{model};
        small::tape tape;
        const auto step = [&](float g, const clipping& clips = {}) {
            tape.gradients = [=](std::size_t entry, std::size_t i) { return entry == 2 && i == 5 ? g : 0.5f; };
            tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
            auto grads = scaler.unscale(acc.take());
            if (clips.by_norm != infinity) ht::clip_grad_norm(grads, clips.by_norm);
            if (clips.by_value != infinity) ht::clip_grad_value(grads, clips.by_value);
            const auto result = optimizer.step(grads).result();
            scaler.update();
            return result;
        };
        CHECK(step(1) == step_result::taken);
        const float finite_below = largest / std::fmax(scale, 1.0f);  // larger ones are infinite when scaled
        std::int64_t skipped = 0;
        for (const float g : {1.001f * most, -1.001f * most, 1e21f, 1e30f, -largest}) {
            CAPTURE(g);
            if (!(std::fabs(g) > most) || std::fabs(g) > finite_below) continue;
            const auto before = bytes_of<Device>(model, optimizer);
            CHECK(step(g) == step_result::infinity);
            ++skipped;
            // After clipping the gradient is still too large for the moments.
            if (most < largest / 4) {
                CHECK(step(finite_below, by_norm(2 * most)) == step_result::infinity);
                ++skipped;
            }
            CHECK((bytes_of<Device>(model, optimizer) == before));
            CHECK(optimizer.skips() == ht::skip_counts{.infinity = skipped});
            // Clipped to less, the step is taken.
            CHECK(step(g, by_norm(1)) == step_result::taken);
            CHECK(step(g, {infinity, 0.5f}) == step_result::taken);
            CHECK(step(g, {2 * most, 0.5f}) == step_result::taken);
            CHECK(are_finite<State>(model, optimizer));
        }
        CHECK(scaler.get_scale() == scale);  // a smaller scale would not help
        CHECK(scaler.overflows() == 0);
        const float taken = std::fmin(0.999f * most, finite_below);
        for (int t = 0; t < 40; ++t) CHECK(step(taken) == step_result::taken);
        CHECK(are_finite<State>(model, optimizer));
        const auto before = bytes_of<Device>(model, optimizer);
        CHECK(step(1) == step_result::taken);
        CHECK((bytes_of<Device>(model, optimizer) != before));
    }
}

/// Two optimizers with one scaler: each takes or skips its step by the gradients of its model.
template <class Device>
void check_parts(Device& device) {
    using P = ht::full_fp32;
    for (const bool is_second : {false, true}) {
        for (const float other : {1.0f, 0x1p62f, infinity}) {
            CAPTURE(is_second);
            CAPTURE(other);
            small::model<P> a{device}, b{device};
            auto of_a = make_adamw(device, a), of_b = make_adamw(device, b);
            ht::grad_scaler scaler{device, {.init_scale = 4}};
            ht::accumulator acc{a, b};
            small::tape tape;
            const auto backward = [&](small::model<P>& model, float g) {
                tape.gradients = [=](std::size_t, std::size_t i) { return i == 0 ? g : 0.5f; };
                tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
            };
            const auto result_of = [](float g) {
                return g == 1e25f || g == infinity ? step_result::infinity : step_result::taken;
            };
            const float g_a = is_second ? other : 1e25f, g_b = is_second ? 1e25f : other;
            backward(a, g_a), backward(b, g_b);
            {
                auto grads = scaler.unscale(acc.take());
                CHECK(of_a.step(grads).result() == result_of(g_a));
                CHECK(of_b.step(grads).result() == result_of(g_b));
                scaler.update();
            }
            if (other == infinity) continue;
            // Clipped together, both models' gradients are small enough.
            backward(a, g_a), backward(b, g_b);
            auto grads = scaler.unscale(acc.take());
            ht::clip_grad_norm(grads, 1e15f);
            CHECK(of_a.step(grads).result() == step_result::taken);
            CHECK(of_b.step(grads).result() == step_result::taken);
        }
    }
}

/// A guard leaves such a norm out of its average, and an optimizer without a scaler skips the step, too.
template <class Device>
void check_unscaled(Device& device) {
    small::model<ht::full_fp32> model{device};
    auto optimizer = make_adamw(device, model);
    ht::outlier_guard guard{device, ht::outlier_options{.window = 8, .warm_up = 4}};
    ht::accumulator acc{model, ht::unscaled};
    small::tape tape;
    const auto step = [&](float g) {
        tape.gradients = [=](std::size_t, std::size_t i) { return i == 0 ? g : 0.5f; };
        tape.backward(small::loss{}, acc, model.parameters());
        auto grads = acc.take();
        guard.watch(grads);
        return optimizer.step(grads).result();
    };
    CHECK(step(1) == step_result::taken);
    CHECK(step(1e21f) == step_result::infinity);
    CHECK(guard.state().norms.size() == 1);
    // A gradient changed by hand: the result of the earlier pass over the gradients is no longer valid.
    tape.gradients = [](std::size_t, std::size_t) { return 0.5f; };
    tape.backward(small::loss{}, acc, model.parameters());
    auto grads = acc.take();
    ht::clip_grad_norm(device, grads, 1e30f);
    const float large = 1e22f;
    model.parameters().memory().write(const_cast<float*>(grads.of(model.fc2.weight).data()), &large, sizeof large);
    grads.changed();
    CHECK(optimizer.step(grads).result() == step_result::infinity);
}

template <class Device>
void check(Device& device) {
    const auto adam = [](auto& d, auto& model) { return make_adamw(d, model); };
    const float square = 0x1p63f;
    check_rule<float, ht::full_fp32>(device, adam, square);
    check_rule<float, ht::pure_bf16>(device, adam, square);
    check_rule<float, ht::with_split_master<ht::amp_bf16>>(device, adam, square);
    check_rule<ht::bfloat16, ht::with_state<ht::pure_bf16, ht::bfloat16>>(device, adam, square);
    const auto lion = [](auto& d, auto& model) { return make_lion(d, model); };
    check_rule<float, ht::full_fp32>(device, lion, largest / 2);
    check_rule<ht::bfloat16, ht::with_state<ht::pure_bf16, ht::bfloat16>>(device, lion, largest / 2);
    for (const double momentum : {0.5, 0.9, 0.99}) {
        CAPTURE(momentum);
        const auto sgd = [=](auto& d, auto& model) { return make_sgd(d, model, momentum); };
        const auto sum = static_cast<float>(static_cast<double>(largest) / 2 * (1 - momentum));
        check_rule<float, ht::full_fp32>(device, sgd, sum);
        check_rule<ht::bfloat16, ht::with_state<ht::amp_bf16, ht::bfloat16>>(device, sgd, sum);
    }
    check_rule<float, ht::full_fp32>(device, [](auto& d, auto& model) { return make_sgd(d, model, 0); }, largest);
    check_parts(device);
    check_unscaled(device);
}

}  // namespace large_gradients
