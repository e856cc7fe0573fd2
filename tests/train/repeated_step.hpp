// SPDX-License-Identifier: MIT
/// \file
/// Steps that are repeated, on any device: after an exception when train() is called again, and with smaller micro-batches
/// when memory ran out. The model has everything that a forward pass changes beside its result: running statistics and random
/// draws.
#pragma once

#include <cmath>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/nn/channel_norm.hpp>
#include <halftone/train/trainer.hpp>

#include "support/random.hpp"
#include "support/gradient_sink.hpp"

namespace repeated_step {

namespace ht = halftone;
using ht::extent;

/// Images of three channels, 2 by 3, and what the model is to make of them.
struct batch {
    ht::const_view<float, 4> images, targets;

    extent rows() const { return images.extent_of(0); }
    extent size() const { return rows(); }
    batch part(extent first, extent count) const {
        const ht::shape<4> s{count, 3, 2, 3};
        return {{images.data() + first * 18, s}, {targets.data() + first * 18, s}};
    }
    std::vector<batch> split(extent count) const {
        std::vector<batch> parts;
        for (extent i = 0; i < count; ++i) parts.push_back(part(i * (rows() / count), rows() / count));
        return parts;
    }
    template <class Function>
    batch with_views(const Function& f) const {
        return {f(images), f(targets)};
    }
};

struct data {
    std::vector<float> images, targets;
    batch sample(std::uint32_t step, extent rows) {
        images = support::random(2 * step + 1).normals<float>(static_cast<int>(18 * rows), 2, 1);
        targets = support::random(2 * step).normals<float>(static_cast<int>(18 * rows));
        const ht::shape<4> s{rows, 3, 2, 3};
        return {{images.data(), s}, {targets.data(), s}};
    }
};

/// Batch norm, dropout, and a loss that throws `Error` once, in the `left`-th micro-batch after `left` was set.
template <class P, class Error>
struct failing_net : ht::nn::model {
    using policy = P;
    ht::nn::batch_norm2d<ht::at<P, "bn">> bn;
    mutable int left = 0;

    explicit failing_net(auto& device) : model{device}, bn{parameters(), 3} { commit(*this, 3); }
    template <class Context>
    ht::variable<float, 0> loss(Context&& ctx, const batch& b) const {
        const auto y = ht::dropout(ctx, bn(ctx, ctx.root().to_device(b.images)), {0.25f});
        const auto loss = ht::mean_squared_error(ctx, y, b.targets);
        if (--left == 0) throw Error("memory: no 1 bytes for other; held: nothing");
        return loss;
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.bn); }
};

struct outcome {
    std::vector<double> losses;
    std::vector<std::vector<float>> values;  ///< of all entries of the store
    extent batch = 0;
    friend bool operator==(const outcome& a, const outcome& b) { return a.losses == b.losses && a.values == b.values; }
};
struct recorder : ht::trainer_callback {
    std::vector<double> losses;
    void on_log(const ht::trainer_state& s) override { losses.push_back(s.loss); }
};

inline ht::training_arguments arguments_of(extent rows, extent accumulation) {
    return {.per_device_train_batch_size = rows, .gradient_accumulation_steps = accumulation, .max_steps = 5,
            .learning_rate = 1e-2, .logging_steps = 1};
}

/// A run whose loss throws in micro-batch `fails_in` (0: never), and that then goes on.
template <class P, class Error, class Device>
outcome run(Device& device, ht::training_arguments a, int fails_in, bool throws) {
    failing_net<P, Error> model{device};
    model.left = fails_in;
    data rows;
    ht::trainer trainer{device, model, a};
    recorder log;
    trainer.add_callback(log);
    if (throws) CHECK_THROWS_AS(trainer.train(rows), Error);
    trainer.train(rows);
    CHECK(trainer.state().step == 5);
    outcome o{log.losses, {}, trainer.arguments().per_device_train_batch_size};
    for (std::size_t i = 0; i < model.parameters().entries().size(); ++i)
        o.values.push_back(support::read_masters(model.parameters(), i));
    return o;
}

/// An exception in the first or second micro-batch of an early step: the run goes on with the bits of one without it. Where
/// steps are captured, those from the third on do not call the model.
template <class P, class Make>
void check_thrown(bool is_captured) {
    const auto with = [](int fails_in) {
        auto device = Make{}();
        return run<P, std::runtime_error>(device, arguments_of(4, 2), fails_in, fails_in != 0);
    };
    const outcome never = with(0);
    CHECK(never.values[2][0] > 0.5f);  // a running mean
    for (int fails_in = 1; fails_in <= (is_captured ? 4 : 6); ++fails_in) {
        CAPTURE(fails_in);
        CHECK(with(fails_in) == never);
    }
}

/// Memory runs out in the first step: the run is the one that began with smaller micro-batches. In a later one: whichever of
/// its micro-batches it was, the step begins with the states of its beginning.
template <class P, class Make>
void check_out_of_memory(bool is_captured) {
    const auto with = [](extent rows, extent accumulation, int fails_in) {
        auto device = Make{}();
        ht::training_arguments a = arguments_of(rows, accumulation);
        a.auto_find_batch_size = true;
        return run<P, ht::out_of_memory>(device, a, fails_in, false);
    };
    const outcome small = with(2, 4, 0);
    for (const int fails_in : {1, 2}) {
        CAPTURE(fails_in);
        const outcome found = with(4, 2, fails_in);
        CHECK(found.batch == 2);
        CHECK(found == small);
    }
    if (is_captured) return;
    const outcome first = with(4, 2, 5), second = with(4, 2, 6);
    CHECK(first.batch == 2);
    CHECK(first == second);
}

}  // namespace repeated_step
