// SPDX-License-Identifier: MIT
/// \file
/// Training steps with small whole numbers, whose sums are exact in any order: all devices, instruction sets and numbers of
/// threads give the same bits.
///
///     exact_steps::check_penalty(device, reference);             // two devices
///
/// Parameters, inputs and factors are whole numbers or powers of two, and no sum reaches 2^24. Numbers that fp16 cannot represent
/// are rounded once, from an exact sum.
#pragma once

#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>
#include <halftone/nn/dropout.hpp>
#include <halftone/nn/sparse_embedding.hpp>

#include "support/gradient_sink.hpp"
#include "support/random.hpp"

namespace exact_steps {

namespace ht = halftone;

inline constexpr int steps = 3, micro_batches = 2;
inline constexpr ht::extent samples = 6, in = 5, hidden = 4, out = 2, vocabulary = 30, width = 6;

/// y = down dropout(up(x)^2): twice differentiable, and exact on whole numbers.
template <class P>
struct network : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::linear<ht::at<P, "down">> down;
    ht::nn::dropout drop;

    template <class Device>
    network(Device& device, float p)
        : ht::nn::model(device), up(parameters(), in, hidden), down(parameters(), hidden, out), drop(p) {
        commit(*this, 1);
    }
    template <class Context, class X>
    auto operator()(Context& ctx, const X& x) const {
        const auto h = up(ctx, x);
        return down(ctx, drop(ctx, ht::mul(ctx, h, h)));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.down); }
};

/// A table whose rows are looked up, with a sparse gradient.
template <class P>
struct lookups : ht::nn::model {
    using policy = P;
    ht::nn::sparse_embedding<ht::at<P, "items">> items;

    template <class Device>
    explicit lookups(Device& device) : ht::nn::model(device), items(parameters(), vocabulary, width) {
        commit(*this, 1);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.items); }
};

/// The results of a run: losses, and the parameters after each step.
struct trace {
    std::vector<float> values;
    std::int64_t taken = 0;
    float scale = 0;
    ht::random_state random;
};

/// Every step begins with new whole parameters, so that later steps do not round the results of earlier ones. `loss` gets the
/// number of a micro-batch.
template <class Device, class Model, class Tape, class Loss>
trace run(Device& device, Model& model, Tape& tape, const Loss& loss) {
    trace seen;
    ht::sgd optimizer{device, model, {.lr = 0x1p-6}};
    ht::grad_scaler scaler{device, {.init_scale = 4, .growth_interval = 2}};
    ht::accumulator acc{model};
    auto& parameters = model.parameters();
    for (int step = 0; step < steps; ++step) {
        support::random numbers(static_cast<std::uint64_t>(step) + 1);
        for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
            support::write_masters(parameters, i,
                                   numbers.integers<float>(static_cast<ht::extent>(parameters.entries()[i].count), 1));
        }
        parameters.refresh();
        for (int micro = 0; micro < micro_batches; ++micro) {
            const auto l = loss(scaler, static_cast<std::size_t>(step * micro_batches + micro));
            seen.values.push_back(l.item());
            tape.backward(scaler.scale(l / static_cast<float>(micro_batches)), acc);
        }
        auto grads = scaler.unscale(acc.take());
        optimizer.step(grads);
        scaler.update();
        for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
            const auto masters = support::read_masters(parameters, i);
            seen.values.insert(seen.values.end(), masters.begin(), masters.end());
        }
    }
    seen.taken = optimizer.steps();
    seen.scale = scaler.get_scale();
    seen.random = tape.random_state();
    return seen;
}

/// The values of each micro-batch in device memory; a tape reads them in place, also in the backward pass.
template <class Device>
std::vector<ht::tensor<float, 2>> inputs(Device& device) {
    std::vector<ht::tensor<float, 2>> all;
    for (int micro = 0; micro < steps * micro_batches; ++micro) {
        const auto x = support::random(static_cast<std::uint64_t>(micro) + 100).integers<float>(samples * in, 1);
        all.push_back(ht::to_device(device, ht::const_view<float, 2>(x.data(), {samples, in})));
    }
    return all;
}

/// The loss plus the squares of its gradients with respect to parameters and inputs.
template <class P, class Device>
trace penalty(Device& device) {
    network<P> model(device, 0);
    const auto given = inputs(device);
    ht::tape tape{device, ht::double_backward};
    return run(device, model, tape, [&](auto& scaler, std::size_t micro) {
        const auto x = tape.leaf(ht::as_view(given[micro]));
        const auto loss = ht::sum<float>(tape, model(tape, x));
        const auto grads = scaler.unscale(tape.gradients(scaler.scale(loss), model, x));
        return ht::add(tape, loss, ht::mul(tape, ht::sum_of_squares(tape, grads), 0x1p-5f));
    });
}

/// A mask for each micro-batch, which the backward pass generates again.
template <class P, class Device>
trace dropout(Device& device) {
    network<P> model(device, 0.5f);
    const auto given = inputs(device);
    ht::tape tape{device};
    tape.seed(7);
    return run(device, model, tape, [&](auto&, std::size_t micro) {
        const auto y = model(tape, tape.constant(ht::as_view(given[micro])));
        return ht::sum<float>(tape, ht::dropout(tape, ht::mul(tape, y, y), {.p = 0.75f}, y));
    });
}

/// Different rows in every micro-batch, some of them twice.
template <class P, class Device>
trace lookup(Device& device) {
    lookups<P> model(device);
    std::vector<std::vector<std::int32_t>> ids;
    for (int micro = 0; micro < steps * micro_batches; ++micro) {
        ids.push_back(support::random(static_cast<std::uint64_t>(micro) + 200).indices(10, vocabulary));
        ids.back()[3] = ids.back()[7] = ids.back()[0];
    }
    ht::tape tape{device};
    return run(device, model, tape, [&](auto&, std::size_t micro) {
        const auto rows = model.items(tape, ht::const_view<std::int32_t, 2>(ids[micro].data(), {2, 5}));
        return ht::sum<float>(tape, ht::mul(tape, ht::add(tape, rows, rows), ht::add(tape, rows, 3.0f)));
    });
}

/// Both runs have the same results, no step was skipped, and at most half of the results are 0.
inline void check_same(const trace& one, const trace& other) {
    CHECK((one.values == other.values));
    CHECK(one.taken == steps);
    CHECK(other.taken == steps);
    CHECK(one.scale == 8);
    CHECK(other.scale == 8);
    CHECK(one.random == other.random);
    // With only zeros a wrong step could have the right results.
    CHECK(std::count(one.values.begin(), one.values.end(), 0.0f) * 2 < static_cast<std::ptrdiff_t>(one.values.size()));
}

template <class One, class Other>
void check_penalty(One& one, Other& other) {
    check_same(penalty<ht::amp_fp16>(one), penalty<ht::amp_fp16>(other));
}
template <class One, class Other>
void check_dropout(One& one, Other& other) {
    const trace seen = dropout<ht::amp_fp16>(one);
    check_same(seen, dropout<ht::amp_fp16>(other));
    CHECK(seen.random == ht::random_state{7, steps * micro_batches});
}
template <class One, class Other>
void check_lookup(One& one, Other& other) {
    check_same(lookup<ht::amp_fp16>(one), lookup<ht::amp_fp16>(other));
}

}  // namespace exact_steps
