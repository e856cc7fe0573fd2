// SPDX-License-Identifier: MIT
/// \file
/// Training with split masters has, on every device, the bits of training with whole ones whose copies round ties away
/// from zero, and takes two bytes a parameter less.
#pragma once

#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/scale/grad_scaler.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "optim/small_model.hpp"

namespace split_training {

namespace ht = halftone;

using whole = ht::with_copy_rounding<ht::amp_bf16, ht::rounding::nearest_away>;
using split = ht::with_split_master<ht::amp_bf16>;
static_assert(ht::check_policy<split>() && ht::check_policy<ht::at<split, "norm">>());

enum class rule { adamw, sgd };

template <rule Rule, class Device, class Model>
auto make_optimizer(Device& device, Model& model) {
    const std::vector<ht::parameter_group> groups{{"norm", {.weight_decay = 0}}, {"head", {.lr_scale = 0.1}}};
    if constexpr (Rule == rule::adamw) {
        return ht::adamw<Device, Model>(device, model, ht::adamw_options{.lr = 1e-3, .weight_decay = 0.1}, groups);
    } else {
        return ht::sgd<Device, Model>(device, model, ht::sgd_options{.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.01},
                                      groups);
    }
}

/// A model with all objects of a training step.
template <rule Rule, class P, class Device>
struct run {
    using model_type = small::model<P>;
    Device& device;
    model_type model{device};
    decltype(make_optimizer<Rule>(device, model)) optimizer = make_optimizer<Rule>(device, model);
    ht::grad_scaler<Device> scaler{device};
    ht::accumulator<ht::through_scaler, ht::types<model_type>> acc{model};
    small::tape tape{};
    int skipped = 0;

    explicit run(Device& d) : device(d) {}

    /// Every seventeenth step overflows.
    void step(int t) {
        tape.gradients = [t](std::size_t entry, std::size_t i) {
            if (t % 17 == 5 && entry == 2 && i == 3) return std::numeric_limits<float>::infinity();
            return static_cast<float>(
                       static_cast<int>((i * 7919 + entry * 31 + static_cast<std::size_t>(t) * 104729) % 257) - 128) /
                   256;
        };
        tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
        auto grads = scaler.unscale(acc.take());
        ht::clip_grad_norm(grads, 1.0f);
        skipped += optimizer.step(grads).skipped() ? 1 : 0;
        scaler.update();
    }
};

template <class One, class Other, class Device>
bool same_values(Device& device, const One& one, const Other& other) {
    const auto a = ht::to_host(device, one), b = ht::to_host(device, other);
    return a.size() == b.size() &&
           std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof *a.data()) == 0;
}

/// The bits of all masters, and of the values that kernels read.
template <class Device, class One, class Other>
bool same_parameters(Device& device, const One& one, const Other& other) {
    const auto same = [&](const auto& p, const auto& q) {
        return same_values(device, p.master(), q.master()) && same_values(device, p.values(), q.values());
    };
    return same(one.fc1.weight, other.fc1.weight) && same(one.norm.weight, other.norm.weight) &&
           same(one.fc2.weight, other.fc2.weight) && same(one.head.weight, other.head.weight);
}

/// `steps` steps of both, compared ten times.
template <rule Rule, class Device>
void same_steps(Device& device, int steps) {
    run<Rule, whole, Device> one(device);
    run<Rule, split, Device> other(device);
    CHECK(same_parameters(device, one.model, other.model));
    const auto begin = ht::to_host(device, one.model.fc1.weight.master());
    for (int t = 1; t <= steps; ++t) {
        one.step(t), other.step(t);
        if (t % std::max(1, steps / 10) != 0) continue;
        CAPTURE(t);
        CHECK(same_parameters(device, one.model, other.model));
    }
    CHECK(other.skipped == one.skipped);
    CHECK(other.skipped == (steps + 12) / 17);
    CHECK(ht::to_host(device, other.model.fc1.weight.master())(0) != begin(0));
}

/// The layout of parameters, how they are read and set, and the memory of frozen ones.
template <class Device>
void lies_in_halves(Device& device) {
    using split_storage = ht::storage_signature<split, ht::op::linear>;
    static_assert(split_storage::is_split && sizeof(split_storage::master) == 2 &&
                  std::is_same_v<split_storage::param, float>);
    static_assert(!ht::storage_signature<split, ht::op::layer_norm>::is_split);
    static_assert(std::is_same_v<ht::storage_signature<split, ht::op::layer_norm>,
                                 ht::storage_signature<whole, ht::op::layer_norm>>);
    static_assert(
        std::is_same_v<
            ht::storage_signature<ht::full_fp32, ht::op::linear>,
            ht::storage_signature<ht::with_copy_rounding<ht::full_fp32, ht::rounding::nearest_away>, ht::op::linear>>);

    small::model<whole> one(device);
    const std::size_t before = device.memory().usage().live(ht::memory_kind::master),
                      copies = device.memory().usage().live(ht::memory_kind::copy);
    small::model<split> other(device);
    // 67, 70 and 3 parameters of three layers, in slabs of 128, 128 and 64.
    CHECK(other.parameters().bytes() == one.parameters().bytes() - 2 * (128 + 128 + 64));
    CHECK(device.memory().usage().live(ht::memory_kind::master) - before == before - 2 * (128 + 128 + 64));
    CHECK(device.memory().usage().live(ht::memory_kind::copy) == 2 * copies);

    // A tie, which nearest even would round down; NaN; the largest float, whose copy is infinite and whose master is restored.
    std::vector<float> values(67, 0x1.010000p0f);
    values[1] = -0x1.fffffep127f, values[2] = 1.0f / 3, values[3] = std::numeric_limits<float>::quiet_NaN(),
    values[66] = 0x1p-149f;
    other.fc1.weight.assign(values);
    one.fc1.weight.assign(values);
    CHECK(same_parameters(device, one, other));
    const auto read = ht::to_host(device, other.fc1.weight.values());
    CHECK(read(0) == 0x1.02p0f);
    CHECK(read(1) == -std::numeric_limits<float>::infinity());
    CHECK(ht::to_host(device, other.fc1.weight.master())(1) == values[1]);
    CHECK(ht::to_host(device, other.fc1.weight.master())(66) == values[66]);
    other.parameters().refresh();
    CHECK(same_parameters(device, one, other));
    CHECK_THROWS_AS(other.fc1.weight.assign(std::vector<float>(66)), ht::shape_error);

    // A frozen parameter keeps the values that kernels read, and its neighbours are unchanged.
    CHECK(other.parameters().freeze("fc1") == 1);
    CHECK(same_values(device, one.fc1.weight.values(), other.fc1.weight.values()));
    CHECK(same_values(device, one.fc2.weight.master(), other.fc2.weight.master()));
    CHECK_THROWS_AS(other.fc1.weight.master(), ht::state_error);
    CHECK_THROWS_AS(other.fc1.weight.assign(values), ht::state_error);
}

}  // namespace split_training
