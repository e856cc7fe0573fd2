// SPDX-License-Identifier: MIT
/// \file
/// Tests of AdamW with moments in 8 bits, for every device, in addition to those of the kernel
/// (kernel/optimizer_step/eight_bit_checks.hpp).
///
///     adamw_8bit_checks::small_parameters_are_adamws(device);
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/optim/adamw.hpp>
#include <halftone/optim/adamw_8bit.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "optim/small_model.hpp"

namespace adamw_8bit_checks {

namespace ht = halftone;

/// fc1 and fc2 of the small model, 600 and 603 parameters, have moments in 8 bits; those of its norm and head are floats.
inline constexpr ht::extent width = 600, least = 64;

inline float gradient_of(std::size_t entry, std::size_t i, int t) {
    const int n = static_cast<int>((i * 7919 + entry * 31 + static_cast<std::size_t>(t) * 104729) % 257) - 128;
    return static_cast<float>(n) / 256 / static_cast<float>(std::size_t{1} << (i % 9));
}

/// A model with all objects of a training step, and an optimizer that is made by make(device, model).
template <class Device, class P, class Optimizer>
struct run {
    using model_type = small::model<P>;
    Device& device;
    model_type model;
    Optimizer optimizer;
    ht::grad_scaler<Device> scaler{device};
    ht::accumulator<ht::through_scaler, ht::types<model_type>> acc{model};
    small::tape tape{};

    template <class Options>
    run(Device& d, const Options& options, const std::vector<ht::parameter_group>& groups = {})
        : device(d), model(d, width), optimizer(d, model, options, groups) {}

    bool step(int t, bool overflow = false, std::size_t left_out = 99) {
        tape.gradients = [=](std::size_t entry, std::size_t i) {
            return overflow && entry == 2 && i == 3 ? std::numeric_limits<float>::infinity() : gradient_of(entry, i, t);
        };
        tape.reaches = [=](std::size_t entry) { return entry != left_out; };
        tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
        auto grads = scaler.unscale(acc.take());
        ht::clip_grad_norm(grads, 4.0f);
        const bool taken = !optimizer.step(grads).skipped();
        scaler.update();
        return taken;
    }
    std::vector<float> masters(std::size_t entry) {
        return entry == 0   ? values(model.fc1.weight)
               : entry == 1 ? values(model.norm.weight)
               : entry == 2 ? values(model.fc2.weight)
                            : values(model.head.weight);
    }
    /// All bytes that a step changes.
    std::vector<std::byte> bytes() {
        std::vector<std::byte> all;
        const auto add = [&](const void* data, std::size_t count) {
            const auto more = small::bytes_at(model.parameters(), static_cast<const std::byte*>(data), count);
            all.insert(all.end(), more.begin(), more.end());
        };
        for (std::size_t g = 0; g < model.parameters().groups().size(); ++g) {
            const ht::store_group& group = model.parameters().groups()[g];
            add(group.master.data(), group.master.bytes()), add(group.copy.data(), group.copy.bytes());
            add(optimizer.ema(g).data(), optimizer.ema(g).size_bytes());
            for_state(g, [&](auto span) { add(span.data(), span.size_bytes()); });
        }
        return all;
    }
    /// f(span) for each piece of a group's state, in the device's memory.
    template <class F>
    void for_state(std::size_t group, const F& f) {
        for (int which = 0; which < optimizer.moments(); ++which) {
            f(optimizer.moment(which, group));
            if constexpr (requires { optimizer.codes(which, group); })
                f(optimizer.codes(which, group)), f(optimizer.absmax(which, group));
        }
    }

  private:
    template <class Parameter>
    std::vector<float> values(const Parameter& p) {
        const auto host = ht::to_host(device, p.master());
        std::vector<float> all;
        for (ht::extent i = 0; i < p.shape().size(); ++i) all.push_back(static_cast<float>(host(i)));
        return all;
    }
};
template <class Device, class P>
using run_8bit = run<Device, P, ht::adamw_8bit<Device, small::model<P>>>;
template <class Device, class P>
using run_adamw = run<Device, P, ht::adamw<Device, small::model<P>>>;

inline const std::vector<ht::parameter_group> groups{{"norm", {.weight_decay = 0}}, {"fc2", {.lr_scale = 0.5}}};
inline constexpr ht::adamw_8bit_options options{.lr = 0.01, .weight_decay = 0.1, .min_8bit_size = least, .ema_decay = 0.75};

/// Parameters with too few elements for 8 bits have the bits of ht::adamw, also if all parameters are so small. Those with
/// codes are close: a code has an error of at most 0.7% of the largest magnitude, so that these steps differ from AdamW's by a
/// fraction of 1/16.
template <class P, class Device>
void small_parameters_are_adamws(Device& device) {
    run_8bit<Device, P> mine(device, options, groups);
    ht::adamw_8bit_options all_small = options;
    all_small.min_8bit_size = width + 4;
    run_8bit<Device, P> none(device, all_small, groups);
    run_adamw<Device, P> adamw(device, ht::adamw_options{.lr = 0.01, .weight_decay = 0.1, .ema_decay = 0.75}, groups);
    CHECK(mine.optimizer.is_eight_bit(0));
    CHECK_FALSE(mine.optimizer.is_eight_bit(1));
    CHECK(mine.optimizer.is_eight_bit(2));
    CHECK_FALSE(mine.optimizer.is_eight_bit(3));
    const std::vector<float> begin = mine.masters(0);
    for (int t = 1; t <= 6; ++t) {
        const bool overflow = t == 3;
        const std::vector<std::byte> before = mine.bytes();
        CHECK(mine.step(t, overflow) == !overflow);
        CHECK(none.step(t, overflow) == !overflow);
        CHECK(adamw.step(t, overflow) == !overflow);
        CHECK((mine.bytes() == before) == overflow);
        for (const std::size_t entry : {1u, 3u}) CHECK((mine.masters(entry) == adamw.masters(entry)));
        for (const std::size_t entry : {0u, 1u, 2u, 3u}) CHECK((none.masters(entry) == adamw.masters(entry)));
    }
    double difference = 0, way = 0;
    for (std::size_t i = 0; i < begin.size(); ++i) {
        const double theirs = static_cast<double>(adamw.masters(0)[i]);
        difference += std::fabs(static_cast<double>(mine.masters(0)[i]) - theirs);
        way += std::fabs(static_cast<double>(begin[i]) - theirs);
    }
    CHECK(difference > 0);
    CHECK(difference < way / 16);
    CHECK(mine.optimizer.steps() == 5);
    CHECK(mine.optimizer.skipped_steps() == 1);
}

/// A parameter that a window does not reach keeps its codes and its step count; a resumed run has the same bits. Of any
/// optimizer with moments in 8 bits.
template <class P, class Device, class Optimizer = ht::adamw_8bit<Device, small::model<P>>, class Options = ht::adamw_8bit_options>
void resumes(Device& device, const Options& o = options) {
    run<Device, P, Optimizer> one(device, o, groups), other(device, o, groups);
    const auto codes_of = [](auto& r, std::size_t entry) {
        const ht::store& s = r.model.parameters();
        const std::size_t first = r.optimizer.place(entry), count = s.entries()[entry].count;
        return small::bytes_at(r.model.parameters(),
                               reinterpret_cast<const std::byte*>(
                                   r.optimizer.codes(0, s.entries()[entry].group).data() + first), count);
    };
    for (int t = 1; t <= 4; ++t) {
        const auto fc1 = codes_of(one, 0), fc2 = codes_of(one, 2);
        CHECK(one.step(t, false, t == 2 ? 2 : 99));
        CHECK((codes_of(one, 2) == fc2) == (t == 2));
        CHECK_FALSE((codes_of(one, 0) == fc1));
    }
    CHECK((one.optimizer.state().step_counts == std::vector<std::int64_t>{4, 4, 3, 4}));
    ht::store& to = other.model.parameters();
    for (std::size_t g = 0; g < to.groups().size(); ++g) {
        std::vector<std::vector<std::byte>> saved;
        const auto save = [&](const void* data, std::size_t count) {
            saved.push_back(small::bytes_at(to, static_cast<const std::byte*>(data), count));
        };
        std::size_t next = 0;
        const auto load = [&](void* data, std::size_t count) {
            REQUIRE(saved[next].size() == count);
            to.memory().write(data, saved[next++].data(), count);
        };
        const ht::store_group &a = one.model.parameters().groups()[g], &b = to.groups()[g];
        save(a.master.data(), a.master.bytes()), save(a.copy.data(), a.copy.bytes());
        save(one.optimizer.ema(g).data(), one.optimizer.ema(g).size_bytes());
        one.for_state(g, [&](auto span) { save(span.data(), span.size_bytes()); });
        load(b.master.data(), b.master.bytes()), load(b.copy.data(), b.copy.bytes());
        load(other.optimizer.ema(g).data(), other.optimizer.ema(g).size_bytes());
        other.for_state(g, [&](auto span) { load(span.data(), span.size_bytes()); });
    }
    other.optimizer.load(one.optimizer.state());
    for (int t = 5; t <= 7; ++t) {
        CHECK(one.step(t));
        CHECK(other.step(t));
    }
    CHECK((one.bytes() == other.bytes()));
}

/// The average of the parameters is as with other optimizers, and replaces them during a scope.
template <class P, class Device>
void averages(Device& device) {
    run_8bit<Device, P> r(device, options, groups);
    std::vector<double> mean;
    for (int t = 1; t <= 4; ++t) {
        CHECK(r.step(t));
        const std::vector<float> w = r.masters(0);
        if (mean.empty()) mean.assign(w.begin(), w.end());
        for (std::size_t i = 0; i < w.size(); ++i) mean[i] = 0.75 * mean[i] + 0.25 * static_cast<double>(w[i]);
    }
    const std::vector<std::byte> before = r.bytes();
    const std::vector<float> w = r.masters(0);
    {
        const auto averaged = r.optimizer.average_parameters();
        const std::vector<float> now = r.masters(0);
        double off = 0, moved = 0;
        for (std::size_t i = 0; i < now.size(); ++i) {
            off = std::fmax(off, std::fabs(static_cast<double>(now[i]) - mean[i]) / (std::fabs(mean[i]) + 1));
            moved = std::fmax(moved, std::fabs(static_cast<double>(now[i]) - static_cast<double>(w[i])));
        }
        CHECK(off <= 4 * 0x1p-24 / 0.25);
        CHECK(moved > 1e-3);
    }
    CHECK((r.bytes() == before));
}

/// Split masters have the values of whole ones.
template <class Device>
void splits(Device& device) {
    using whole = ht::with_copy_rounding<ht::amp_bf16, ht::rounding::nearest_away>;
    using split = ht::with_split_master<ht::amp_bf16>;
    run_8bit<Device, whole> one(device, options);
    run_8bit<Device, split> other(device, options);
    for (int t = 1; t <= 4; ++t) {
        CHECK(one.step(t));
        CHECK(other.step(t));
        for (const std::size_t entry : {0u, 1u, 2u, 3u}) CHECK((one.masters(entry) == other.masters(entry)));
    }
}

/// Sums the bytes of parameters' state that a listener is told of.
struct listener final : ht::memory_listener {
    std::size_t bytes = 0;
    void on_peak(const ht::memory_usage&) override {}
    void on_parameter(ht::memory_kind kind, const char*, std::ptrdiff_t count, const void*) override {
        if (kind == ht::memory_kind::moment) bytes += static_cast<std::size_t>(count);
    }
};

/// Two bytes a parameter, and two floats for each 256 of them; frozen parameters have none.
template <class Device>
void counts_bytes(Device& device) {
    using model_type = small::model<ht::amp_bf16>;
    const auto bytes_of = [&](ht::extent wide, const ht::adamw_8bit_options& o, const std::vector<ht::parameter_group>& g) {
        model_type model(device, wide);
        const std::size_t before = device.memory().usage().live(ht::memory_kind::moment);
        listener told;
        device.memory().usage().listen(&told);
        const ht::adamw_8bit<Device, model_type> optimizer(device, model, o, g);
        device.memory().usage().listen(nullptr);
        const std::size_t bytes = device.memory().usage().live(ht::memory_kind::moment) - before;
        CHECK(told.bytes == bytes);
        return bytes;
    };
    const auto rounded = [](std::size_t bytes) { return ht::round_up(bytes, 64u); };
    // Norm and head: two moments of 64 floats each, with the padding. fc1 and fc2 share a slab.
    const std::size_t others = 2 * 2 * 64 * 4;
    CHECK(bytes_of(10000, {}, {}) == others + 2 * (2 * 40 * 256 + rounded(2 * 40 * 4)));
    CHECK(bytes_of(10000, {}, {{"fc2", ht::frozen}}) == others + 2 * (40 * 256 + rounded(40 * 4)));
    CHECK(bytes_of(4095, {}, {{"fc2", ht::frozen}}) == others + 2 * 64 * 64 * 4);
    CHECK(bytes_of(4096, {}, {{"fc2", ht::frozen}}) == others + 2 * (16 * 256 + rounded(16 * 4)));
    CHECK(bytes_of(100000, {}, {}) <= 2 * 100000 * 2.1);
}

}  // namespace adamw_8bit_checks
