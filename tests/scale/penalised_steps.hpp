// SPDX-License-Identifier: MIT
/// \file
/// Captured steps with a gradient penalty, with a sparse table as with a dense one, on any device.
#pragma once

#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>
#include <halftone/train/captured_step.hpp>

#include "optim/sparse_checks.hpp"

namespace penalised_steps {

namespace ht = halftone;

template <class Device, class Model>
struct parts {
    Device& device;
    Model model;
    ht::sgd<Device, Model> optimizer;
    // The first gradients overflow at this height.
    ht::grad_scaler<Device> scaler;
    ht::accumulator<ht::through_scaler, ht::types<Model>> acc{model};
    ht::tape<Device, ht::double_backward_tape> tape;

    explicit parts(Device& d)
        : device(d),
          model(d, 40, 8, ht::has_sparse_gradient<typename decltype(Model::tokens.table)::storage> ? 10 : 0),
          optimizer(d, model, {.lr = 0.25}),
          scaler(d, {.init_scale = 0x1p19f, .growth_interval = 3}),
          tape(d, ht::double_backward) {}

    ht::variable<float, 0> body(const sparse_checks::batch& b) {
        const auto loss = model.loss(tape, b);
        const auto grads = scaler.unscale(tape.gradients(scaler.scale(loss), model));
        const auto total = ht::add(tape, loss, ht::norm(tape, grads));
        tape.backward(scaler.scale(total), acc);
        auto unscaled = scaler.unscale(acc.take());
        optimizer.step(unscaled);
        scaler.update();
        return loss;
    }
};

/// The table's gradient is dense as a variable, and rows in the accumulator: all of it has the bits of a dense table.
template <class Device>
void check(Device& one, Device& two) {
    parts<Device, sparse_checks::dense<ht::amp_fp16>> plain(one);
    parts<Device, sparse_checks::sparse<ht::amp_fp16>> other(two);
    ht::captured_step step{two, [&](const sparse_checks::batch& b) { return other.body(b); }};
    support::random data(7);
    const auto start = sparse_checks::masters_of(plain.model.tokens.table);
    for (int t = 0; t < 8; ++t) {
        CAPTURE(t);
        std::vector<std::int32_t> tokens = data.indices(10, 40), targets = data.indices(10, 8);
        const sparse_checks::batch b{{tokens.data(), {2, 5}}, {targets.data(), {2, 5}}};
        const float loss = plain.body(b).item();
        const auto run = step(b);
        if constexpr (ht::capturing_device<Device>) {
            if (t > 2) CHECK(run == ht::step_run::replayed);
        } else {
            CHECK(run == ht::step_run::uncaptured);
        }
        CHECK(step.loss() == loss);
        CHECK(sparse_checks::same_bits(sparse_checks::masters_of(plain.model.tokens.table),
                                       sparse_checks::masters_of(other.model.tokens.table)));
        CHECK(sparse_checks::same_bits(sparse_checks::masters_of(plain.model.positions.table),
                                       sparse_checks::masters_of(other.model.positions.table)));
        CHECK(plain.scaler.get_scale() == other.scaler.get_scale());
        CHECK(plain.tape.memory().live() == 0);
    }
    // Otherwise the test has tested nothing.
    CHECK(plain.optimizer.skips().infinity + plain.optimizer.skips().not_a_number > 0);
    CHECK(plain.optimizer.steps() > 2);
    CHECK(other.optimizer.steps() == plain.optimizer.steps());
    CHECK(!sparse_checks::same_bits(sparse_checks::masters_of(plain.model.tokens.table), start));
}

}  // namespace penalised_steps
