// SPDX-License-Identifier: MIT
/// \file
/// Tests of the average of parameters, for any device: its definition in double over steps of which some are skipped, and the
/// scope in which it replaces the parameters.
///
///     ema_checks::equals_definition<ht::amp_bf16>(device);
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/number/round_to.hpp>
#include <halftone/optim/adamw.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "optim/small_model.hpp"

namespace ema_checks {

namespace ht = halftone;

/// A parameter as a double, wherever its halves are.
template <class Device, class Parameter>
std::vector<double> values_of(Device&, const Parameter& p) {
    using storage = typename Parameter::storage;
    const ht::store& s = p.owner();
    const ht::store_entry& e = s.entries()[p.entry()];
    const ht::store_group& g = s.groups()[e.group];
    std::vector<double> all;
    std::vector<typename storage::master> masters(e.count);
    p.owner().memory().read(masters.data(), g.master.data() + e.master * sizeof masters[0], e.count * sizeof masters[0]);
    if constexpr (storage::is_split) {
        std::vector<ht::bfloat16> copies(e.count);
        p.owner().memory().read(copies.data(), g.copy.data() + e.copy * 2, e.count * 2);
        for (std::size_t i = 0; i < e.count; ++i) all.push_back(static_cast<double>(ht::join({copies[i], masters[i]})));
    } else {
        for (const auto& w : masters) all.push_back(static_cast<double>(static_cast<float>(w)));
    }
    return all;
}
template <class Optimizer, class Parameter>
std::vector<float> average_of(const Optimizer& o, const Parameter& p) {
    std::vector<float> all(static_cast<std::size_t>(p.shape().size()));
    p.owner().memory().read(all.data(), o.ema(p).data(), all.size() * sizeof(float));
    return all;
}
inline std::vector<std::byte> bytes_of(ht::store& s) {
    std::vector<std::byte> all;
    for (const ht::store_group& g : s.groups()) {
        for (const ht::buffer* b : {&g.master, &g.copy}) {
            const auto more = small::bytes_at(s, b->data(), b->bytes());
            all.insert(all.end(), more.begin(), more.end());
        }
    }
    return all;
}

/// The definition of one parameter's average.
template <class Device, class Parameter>
struct exact_average {
    const Parameter* parameter;
    std::vector<double> mean{};

    void add(Device& device, double decay) {
        const std::vector<double> w = values_of(device, *parameter);
        if (mean.empty()) mean = w;
        for (std::size_t i = 0; i < w.size(); ++i) mean[i] = decay * mean[i] + (1 - decay) * w[i];
    }
};

template <class P, class Device>
void equals_definition(Device& device, int steps = 12, double decay = 0.75) {
    small::model<P> model{device};
    ht::adamw optimizer{device, model,
                        ht::adamw_options{.lr = 0.05, .seed = 5, .ema_decay = decay},
                        {{"head", {.lr_scale = 0.5}}, {"norm", ht::frozen}}};
    ht::grad_scaler scaler{device};
    ht::accumulator acc{model};
    small::tape tape;
    exact_average<Device, decltype(model.fc1.weight)> fc1{&model.fc1.weight}, head{&model.head.weight};
    for (int t = 0; t < steps; ++t) {
        const bool overflow = t == 1 || t == 4;
        tape.gradients = [=](std::size_t entry, std::size_t i) {
            if (overflow && i == 2) return std::numeric_limits<float>::infinity();
            return static_cast<float>(static_cast<int>((i * 7919 + entry * 31 + static_cast<std::size_t>(t) * 104729) % 257) -
                                      128) / 256;
        };
        tape.reaches = [=](std::size_t entry) { return entry != 2; };  // fc2 has no step
        tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
        auto grads = scaler.unscale(acc.take());
        CHECK(optimizer.step(grads).skipped() == overflow);
        scaler.update();
        if (!overflow) fc1.add(device, decay), head.add(device, decay);
        const auto compare = [&](const auto& e) {
            const std::vector<float> mean = average_of(optimizer, *e.parameter);
            for (std::size_t i = 0; i < mean.size(); ++i) {
                // Each step rounds the difference, its weight and the result once. The errors of earlier steps are multiplied
                // by the decay, so that their sum is at most 1 / (1 - decay) times that of one step.
                const double bound = 4 * 0x1p-24 / (1 - decay) * (std::fabs(e.mean[i]) + 1);
                CHECK(std::fabs(static_cast<double>(mean[i]) - e.mean[i]) <= (t == 0 ? 0 : bound));
            }
        };
        compare(fc1), compare(head);
    }
    const std::vector<float> mean = average_of(optimizer, model.fc1.weight);
    const std::vector<std::byte> before = bytes_of(model.parameters());
    const std::vector<double> fc2 = values_of(device, model.fc2.weight);
    {
        const auto averaged = optimizer.average_parameters();
        using param = typename decltype(model.fc1.weight)::param;
        const std::vector<double> now = values_of(device, model.fc1.weight);
        for (std::size_t i = 0; i < mean.size(); ++i) {
            CHECK(now[i] == static_cast<double>(static_cast<float>(
                                ht::round_to<param, ht::rounding::nearest_even>(mean[i]))));
        }
        CHECK((bytes_of(model.parameters()) != before));
        CHECK((values_of(device, model.fc2.weight) == fc2));  // no step has changed it, so that the average equals it
        CHECK_THROWS_WITH_AS((void)optimizer.average_parameters(),
                             "adamw: average_parameters() while averages are in place already", ht::state_error);
        tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
        auto grads = scaler.unscale(acc.take());
        CHECK_THROWS_WITH_AS(optimizer.step(grads), "adamw: step() while average_parameters() has put averages in place",
                             ht::state_error);
    }
    CHECK((bytes_of(model.parameters()) == before));
    CHECK((average_of(optimizer, model.fc1.weight) == mean));
}

}  // namespace ema_checks
