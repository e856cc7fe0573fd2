// SPDX-License-Identifier: MIT
/// \file
/// The model of classify_images.
#pragma once

#include <utility>

#include <halftone/amp.hpp>
#include <halftone/nn/conv2d.hpp>
#include <halftone/nn/linear.hpp>
#include <halftone/nn/model.hpp>

namespace ht = halftone;

/// Two convolutions with windows of 3x3, each halved by pooling, and two linear layers.
template <class P>
class small_conv_net : public ht::nn::model {
  public:
    using policy = P;

    template <class Device>
    small_conv_net(Device& device, ht::extent channels, ht::extent height, ht::extent width, ht::extent classes,
                   std::uint64_t seed)
        : model(device),
          conv1_(parameters(), channels, 16, {3, 3}, {.padding = {1, 1}}),
          conv2_(parameters(), 16, 32, {3, 3}, {.padding = {1, 1}}),
          fc1_(parameters(), 32 * (height / 4) * (width / 4), 128),
          fc2_(parameters(), 128, classes) {
        commit(*this, seed);
    }

    /// Whether the convolutions are computed again in the backward pass.
    void checkpoint_every(int n) { is_checkpointed_ = n != 0; }

    /// The mean cross-entropy of batch.labels.
    auto loss(auto&& ctx, const auto& batch) const { return ht::cross_entropy(ctx, logits(ctx, batch.images), batch.labels); }

    /// images: (batch, channels, height, width); the result is (batch, classes).
    auto logits(auto&& ctx, const ht::const_view<float, 4>& images) const {
        const auto x = features(ctx, ctx.root().to_device(images));
        return fc2_(ctx, ht::relu(ctx, fc1_(ctx, x)));
    }

    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.conv1_, self.conv2_, self.fc1_, self.fc2_); }

  private:
    auto features(auto&& ctx, const auto& images) const {
        auto convolve = [this](auto&& c, const auto& x) {
            const auto half = ht::max_pool2d(c, ht::relu(c, conv1_(c, x)), {.kernel_size = 2, .stride = 2});
            const auto quarter = ht::max_pool2d(c, ht::relu(c, conv2_(c, half)), {.kernel_size = 2, .stride = 2});
            return ht::flatten(c, quarter, ht::axes<1, -1>);
        };
        // The checkpoint calls it again in the backward pass, and so keeps it.
        return is_checkpointed_ ? ht::checkpoint(ctx, std::move(convolve), images) : convolve(ctx, images);
    }

    ht::nn::conv2d<ht::at<P, "conv1">> conv1_;
    ht::nn::conv2d<ht::at<P, "conv2">> conv2_;
    ht::nn::linear<ht::at<P, "fc1">> fc1_;
    ht::nn::linear<ht::at<P, "fc2">> fc2_;
    bool is_checkpointed_ = false;
};
