// SPDX-License-Identifier: MIT
/// \file
/// Windows that reach only some of a model's parameters: each parameter, with its step count, moments, copies and random numbers,
/// changes as if the windows that did not reach it had not existed. The definition is a model that gets only the windows that
/// reach all of its parameters.
///
///     reached::check<ht::amp_bf16>(device);
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/optim/adamw.hpp>
#include <halftone/optim/lion.hpp>
#include <halftone/optim/sgd.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "optim/small_model.hpp"

namespace reached {

namespace ht = halftone;

/// The entries of the parameters that each window reaches; 9 makes one element of their gradients infinite.
using window = std::vector<std::size_t>;
inline const std::vector<window> windows = {{0, 1, 2},    {0, 2}, {0, 2},       {3, 9}, {3},          {},
                                            {0, 1, 2, 3}, {1, 3}, {0, 1, 2, 9}, {2},    {0, 1, 2, 3}, {1, 3}};
inline bool has(const window& w, std::size_t entry) { return std::find(w.begin(), w.end(), entry) != w.end(); }

template <class P, class Device, class MakeOptimizer>
struct run {
    run(Device& d, const MakeOptimizer& m) : make(m), model(d, 67), optimizer(make(d, model)), scaler(d), acc(model) {}

    void step(std::size_t t, const window& reaches) {
        tape.reaches = [&](std::size_t entry) { return has(reaches, entry); };
        tape.gradients = [&](std::size_t entry, std::size_t i) {
            if (has(reaches, 9) && i == 1) return std::numeric_limits<float>::infinity();
            return static_cast<float>(static_cast<int>((i * 7919 + entry * 31 + t * 104729) % 257) - 128) / 256;
        };
        tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
        auto grads = scaler.unscale(acc.take());
        const ht::step_result expected = reaches.empty()   ? ht::step_result::nothing
                                         : has(reaches, 9) ? ht::step_result::infinity
                                                           : ht::step_result::taken;
        CHECK(optimizer->step(grads).result() == expected);
        scaler.update();
    }
    /// Master, copy and moments of a parameter.
    std::vector<std::byte> bytes(std::size_t entry) {
        std::vector<std::byte> all;
        const ht::store_entry& e = model.parameters().entries()[entry];
        const ht::store_group& g = model.parameters().groups()[e.group];
        const auto add = [&](const std::byte* slab, std::size_t first, std::size_t size) {
            const auto more = small::bytes_at(model.parameters(), slab + first * size, e.count * size);
            all.insert(all.end(), more.begin(), more.end());
        };
        add(g.master.data(), e.master, g.master.bytes() / g.masters);
        if (g.copy_bytes != 0) add(g.copy.data(), e.copy, g.copy_bytes);
        for (int which = 0; which < optimizer->moments(); ++which)
            add(optimizer->moment(which, e.group).data(), e.gradient, g.state_bytes);
        return all;
    }
    /// Continues with another optimizer that has loaded the state of this one.
    void resume(Device& device) {
        auto next = make(device, model);
        ht::store& s = model.parameters();
        for (std::size_t g = 0; g < s.groups().size(); ++g) {
            for (int which = 0; which < optimizer->moments(); ++which) {
                const auto from = optimizer->moment(which, g);
                s.memory().write(next->moment(which, g).data(), small::bytes_at(s, from.data(), from.size()).data(),
                                 from.size());
            }
        }
        next->load(optimizer->state());
        optimizer = std::move(next);
    }

    const MakeOptimizer& make;
    small::model<P> model;
    decltype(make(std::declval<Device&>(), std::declval<small::model<P>&>())) optimizer;
    ht::grad_scaler<Device> scaler;
    ht::accumulator<ht::through_scaler, ht::types<small::model<P>>> acc;
    small::tape tape;
};

template <class P, class Device, class MakeOptimizer>
void check(Device& device, const MakeOptimizer& make) {
    for (const std::size_t resumed_after : {100, 2, 7}) {
        CAPTURE(resumed_after);
        run<P, Device, MakeOptimizer> some(device, make);
        for (std::size_t t = 0; t < windows.size(); ++t) {
            some.step(t, windows[t]);
            if (t == resumed_after) some.resume(device);
        }
        const ht::optimizer_state state = some.optimizer->state();
        CHECK(state.steps == 9);
        CHECK(state.skips == ht::skip_counts{.infinity = 2, .nothing = 1});
        CHECK(state.step_counts == std::vector<std::int64_t>{5, 5, 6, 5});
        for (std::size_t entry = 0; entry < 4; ++entry) {
            CAPTURE(entry);
            run<P, Device, MakeOptimizer> all(device, make);
            for (std::size_t t = 0; t < windows.size(); ++t) {
                if (has(windows[t], entry) && !has(windows[t], 9)) all.step(t, {0, 1, 2, 3});
            }
            CHECK(all.optimizer->state().step_counts.empty());
            CHECK((some.bytes(entry) == all.bytes(entry)));
        }
    }
}

template <class P, class Device>
void check(Device& device) {
    check<P>(device, []<class Model>(Device& d, Model& model) {
        return std::make_unique<ht::adamw<Device, Model>>(
            d, model, ht::adamw_options{.lr = 0.01, .weight_decay = 0.5, .seed = 3});
    });
    check<P>(device, []<class Model>(Device& d, Model& model) {
        return std::make_unique<ht::lion<Device, Model>>(
            d, model, ht::lion_options{.lr = 0.01, .weight_decay = 0.5, .seed = 3});
    });
    check<P>(device, []<class Model>(Device& d, Model& model) {
        return std::make_unique<ht::sgd<Device, Model>>(
            d, model, ht::sgd_options{.lr = 0.01, .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.5, .seed = 3});
    });
}

}  // namespace reached
