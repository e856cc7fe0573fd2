// SPDX-License-Identifier: MIT
/// \file
/// A regression with few layers for a trainer, and captured steps of it: split masters have the bits of whole masters.
///
///     split_net::same_training(one, two);        // devices
#pragma once

#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/reduce.hpp>
#include <halftone/nn/linear.hpp>
#include <halftone/nn/model.hpp>
#include <halftone/nn/norm.hpp>
#include <halftone/train/trainer.hpp>

#include "optim/split_checks.hpp"
#include "support/random.hpp"

namespace split_net {

namespace ht = halftone;

struct batch {
    ht::const_view<ht::bfloat16, 2> x{};  // bfloat16, so that the kernels are those of a GPT
    ht::const_view<float, 2> y{};

    ht::extent rows() const { return x.extent_of(0); }
    ht::extent size() const { return rows(); }
    template <class Function>
    batch with_views(const Function& f) const {
        return {f(x), f(y)};
    }
    std::vector<batch> split(ht::extent count) const {
        std::vector<batch> parts;
        const ht::extent each = rows() / count;
        for (ht::extent i = 0; i < count; ++i) {
            parts.push_back({{x.data() + i * each * x.extent_of(1), {each, x.extent_of(1)}},
                             {y.data() + i * each * y.extent_of(1), {each, y.extent_of(1)}}});
        }
        return parts;
    }
};

/// Inputs and outputs of a linear map, different ones in each step.
class data {
  public:
    batch sample(std::uint32_t step, ht::extent rows) {
        support::random random{step + 1};
        x_ = random.normals<ht::bfloat16>(rows * 5), y_.clear();
        for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
            for (std::size_t j = 0; j < 3; ++j) y_.push_back(x_[5 * r + j] - 0.5f * x_[5 * r + j + 2]);
        }
        return {{x_.data(), {rows, 5}}, {y_.data(), {rows, 3}}};
    }

  private:
    std::vector<ht::bfloat16> x_;
    std::vector<float> y_;
};

template <class P>
struct net : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "up">> up;
    ht::nn::layer_norm<ht::at<P, "norm">> norm;
    ht::nn::linear<ht::at<P, "down">> down;

    template <class Device>
    explicit net(Device& device)
        : ht::nn::model(device), up(parameters(), 5, 19), norm(parameters(), 19), down(parameters(), 19, 3) {
        commit(*this, 3);
    }
    template <class Context>
    ht::variable<float, 0> loss(Context&& ctx, const batch& b) const {
        const auto x = ctx.root().to_device(b.x);
        return ht::mean_squared_error(ctx, down(ctx, norm(ctx, up(ctx, x))), b.y);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.up, self.norm, self.down); }
};

/// Trainers with split and with whole masters on two devices, which capture steps if they can.
template <class Device>
void same_training(Device& one, Device& two) {
    net<split_training::whole> whole(one);
    net<split_training::split> split(two);
    const ht::training_arguments arguments{.per_device_train_batch_size = 4, .gradient_accumulation_steps = 2, .max_steps = 12, .learning_rate = 1e-2, .weight_decay = 0.1, .logging_steps = 4};
    ht::trainer first{one, whole, arguments};
    ht::trainer second{two, split, arguments};
    data a, b;
    const auto result = first.train(a);
    CHECK(second.train(b).train_loss == result.train_loss);
    const auto same = [&](const auto& p, const auto& q) {
        const auto x = ht::to_host(one, p.master()), y = ht::to_host(two, q.master());
        const auto u = ht::to_host(one, p.values()), v = ht::to_host(two, q.values());
        return std::equal(x.begin(), x.end(), y.begin(), y.end()) && std::equal(u.begin(), u.end(), v.begin(), v.end());
    };
    CHECK(same(whole.up.weight, split.up.weight));
    CHECK(same(whole.up.bias, split.up.bias));
    CHECK(same(whole.norm.gain, split.norm.gain));
    CHECK(same(whole.down.weight, split.down.weight));
    const auto begin = ht::to_host(two, net<split_training::split>(two).down.weight.master());
    CHECK(ht::to_host(two, split.down.weight.master())(0, 0) != begin(0, 0));
    CHECK(second.optimizer().steps() == 12);
    if constexpr (ht::capturing_device<Device>) CHECK(second.captured().replays() > 5);
}

}  // namespace split_net
