// SPDX-License-Identifier: MIT
/// \file
/// Runs the cases of tests/golden/optimizers.py through scaler, accumulator, clipping and optimizer.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include <halftone/optim/clip.hpp>
#include <halftone/optim/groups.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "optim/golden.hpp"
#include "optim/small_model.hpp"
#include "support/bounds.hpp"

namespace golden {

namespace ht = halftone;

inline constexpr ht::extent width = 6;
inline constexpr int parameters = 6 + 5 + 9 + 3;

inline double initial_parameter(int i) { return ((31 * i) % 65 - 32) / 16.0; }
inline double gradient(int i, int t, double amplitude) {
    return ((7919 * t + 104729 * i) % 2049 - 1024) / 1024.0 * amplitude;
}

/// The first element of an entry of small::model, counted over all of them.
inline int first_of(std::size_t entry) {
    constexpr int first[] = {0, 6, 11, 20};
    return first[entry];
}
inline std::size_t entry_of(int i) { return i < 6 ? 0 : i < 11 ? 1 : i < 20 ? 2 : 3; }

struct clipping {
    double norm = 0, value = 0, amplitude = 1;
};

/// The gradient of element i in step t as the optimizer reads it, and a bound of the error of float arithmetic.
struct clipped_gradients {
    std::vector<double> value, error;

    clipped_gradients(const clipping& c, int t) {
        double squares = 0;
        for (int i = 0; i < parameters; ++i) {
            value.push_back(gradient(i, t, c.amplitude));
            error.push_back(0);
            squares += value.back() * value.back();
        }
        const double coefficient = c.norm == 0 ? 1 : c.norm / (std::sqrt(squares) + 1e-6);
        for (std::size_t i = 0; i < value.size(); ++i) {
            // The norm has at most one rounding for each parameter and a few more; then those of the formula.
            if (coefficient < 1)
                value[i] *= coefficient, error[i] = support::gamma(parameters + 12) * std::fabs(value[i]);
            if (c.value != 0 && std::fabs(value[i]) > c.value)
                value[i] = std::copysign(c.value, value[i]), error[i] = 0;
        }
    }
};

/// Sets the masters of the model, and refreshes the copies.
template <class Model>
void set_parameters(Model& model) {
    const auto set = [](const auto& parameter) {
        std::vector<float> values;
        for (int i = 0; i < parameter.shape()[0]; ++i)
            values.push_back(static_cast<float>(initial_parameter(first_of(parameter.entry()) + i)));
        parameter.owner().memory().write(parameter.master().data(), values.data(), values.size() * sizeof(float));
    };
    set(model.fc1.weight), set(model.norm.weight), set(model.fc2.weight), set(model.head.weight);
    model.parameters().refresh();
}
template <class Model>
std::vector<float> get_parameters(Model& model) {
    std::vector<float> all;
    const auto get = [&](const auto& parameter) {
        for (const float w : small::master_of(parameter)) all.push_back(w);
    };
    get(model.fc1.weight), get(model.norm.weight), get(model.fc2.weight), get(model.head.weight);
    return all;
}

/// Trains for `steps` with the gradients of the cases, in two micro-batches each; calls after(t).
template <class Device, class Model, class Optimizer, class After>
void train(Device& device, Model& model, Optimizer& optimizer, const clipping& c, int steps, const After& after) {
    ht::grad_scaler scaler{device};
    ht::accumulator acc{model};
    small::tape tape;
    for (int t = 1; t <= steps; ++t) {
        tape.gradients = [&](std::size_t entry, std::size_t i) {
            return static_cast<float>(gradient(first_of(entry) + static_cast<int>(i), t, c.amplitude));
        };
        for (int micro = 0; micro < 2; ++micro) tape.backward(scaler.scale(small::loss{} / 2), acc, model.parameters());
        auto grads = scaler.unscale(acc.take());
        if (c.norm != 0) ht::clip_grad_norm(grads, static_cast<float>(c.norm));
        if (c.value != 0) ht::clip_grad_value(grads, static_cast<float>(c.value));
        CHECK_FALSE(optimizer.step(grads).skipped());
        scaler.update();
        after(t);
    }
}

/// Groups of the cases that have some: the norm is not decayed, the head has a tenth of the rate.
inline std::vector<ht::parameter_group> groups(bool wanted) {
    if (!wanted) return {};
    return {{"norm", {.weight_decay = 0}}, {"head", {.lr_scale = 0.1}}};
}
inline double decay_of(int i, double weight_decay, bool grouped) {
    return grouped && entry_of(i) == 1 ? 0 : weight_decay;
}
inline double lr_of(int i, double lr, bool grouped) { return grouped && entry_of(i) == 3 ? lr * 0.1 : lr; }

/// The case of `lines` that begins at `at`, which becomes that of the next: 100 steps of an optimizer against its definition and
/// torch.optim's steps. O: the optimizer, with golden_policy, golden_copy, golden_options, and `tracked`, one parameter in double and its bound.
template <class O, class Device>
void equals_torch(Device& device, const std::vector<support::golden_line>& lines, std::size_t& at) {
    const support::golden_line& head = lines[at++];
    REQUIRE(head.kind == "case");
    CAPTURE(head.words[0]);
    const auto options = O::golden_options(head);
    const clipping clip{head.number(6), head.number(7), head.number(8)};
    const bool grouped = head.number(9) != 0;

    using model_type = small::model<typename O::golden_policy>;
    model_type model{device, width};
    set_parameters(model);
    typename O::template optimizer<model_type> optimizer{device, model, options, groups(grouped)};
    std::vector<typename O::tracked> exact(parameters);
    for (int i = 0; i < parameters; ++i) exact[static_cast<std::size_t>(i)].w = initial_parameter(i);

    support::comparison with_exact, with_torch;
    train(device, model, optimizer, clip, 100, [&](int t) {
        const clipped_gradients g(clip, t);
        for (std::size_t i = 0; i < exact.size(); ++i) {
            const int n = static_cast<int>(i);
            exact[i].step(g.value[i], g.error[i], options, lr_of(n, options.lr, grouped),
                          decay_of(n, options.weight_decay, grouped), t);
        }
        if (at == lines.size() || lines[at].kind != "step" || lines[at].number(0) != t) return;
        const std::vector<float> ours = get_parameters(model);
        for (std::size_t i = 0; i < exact.size(); ++i) {
            with_exact.expect(static_cast<double>(ours[i]), exact[i].w, exact[i].bound());
            with_torch.expect(static_cast<double>(ours[i]), lines[at].number(i + 1), 2 * exact[i].bound());
            CHECK(exact[i].bound() < 1e-4 * std::max(std::fabs(exact[i].w), 1.0));
        }
        ++at;
    });
    CHECK_WITHIN(with_exact);
    CHECK_WITHIN(with_torch);
    CHECK(optimizer.steps() == 100);
    for (int i = 0; i < width; ++i) {
        CHECK(model.fc1.weight.values()(i).bits() == typename O::golden_copy(model.fc1.weight.master()(i)).bits());
    }
}

}  // namespace golden
