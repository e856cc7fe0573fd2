// SPDX-License-Identifier: MIT
/// \file
/// A ResNet of basic blocks, as torchvision's resnet18 and resnet34 (He et al. 2015).
///
///     ht::nn::resnet<ht::amp_bf16> model{device, {.num_classes = 10}};                        // a ResNet-18
///     ht::nn::resnet<ht::amp_bf16> model{device, {.layers = {3, 4, 6, 3}}};                   // a ResNet-34
///     auto loss = model.loss(tape, batch);                   // batch.images: (images, 3, height, width), .labels: (images)
///     auto logits = model.logits(eval, images);              // (images, num_classes)
///
/// Paths are torchvision's: "conv1", "bn1", "layer1.*.conv1", "layer1.*.bn1", "layer1.*.conv2", "layer1.*.bn2", the same
/// below "layer2", "layer3" and "layer4", and "fc"; except that a block's "downsample.0" and "downsample.1" are called
/// "downsample.0.conv" and "downsample.0.bn". The stream between blocks has the `output` of the policy at "bn1".
///
/// Tapes normalise by the batch's statistics, and update the running ones; inference contexts normalise by the running ones
/// (nn/channel_norm.hpp).
#pragma once

#include <array>
#include <cmath>

#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/pooling.hpp>
#include <halftone/autodiff/op/shapes.hpp>
#include <halftone/nn/channel_norm.hpp>
#include <halftone/nn/conv2d.hpp>
#include <halftone/nn/labelled_loss.hpp>
#include <halftone/nn/linear.hpp>
#include <halftone/nn/model.hpp>
#include <halftone/nn/stack.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// torchvision's initial weights of a convolution before a relu: normal, with variance 2 / (outputs height width).
inline initial kaiming_fan_out(extent outputs, const shape<2>& window) {
    return {.deviation = std::sqrt(2.0f / static_cast<float>(outputs * window[0] * window[1]))};
}
/// The initial weight and bias of torch.nn.Linear: uniform up to 1 / sqrt(inputs).
inline initial uniform_fan_in(extent inputs) { return {.bound = 1.0f / std::sqrt(static_cast<float>(inputs))}; }

}  // namespace detail

namespace nn {

/// The layers before the blocks of a ResNet.
enum class resnet_stem {
    imagenet,  ///< a window of 7x7 and a pooling, both with stride 2, which reduce height and width to a quarter
    cifar,     ///< a window of 3x3, for images of up to 32x32
};

/// The sizes of a ResNet.
struct resnet_config {
    std::array<int, 4> layers{2, 2, 2, 2};  ///< the number of blocks in each stage
    extent num_classes = 1000;
    extent in_channels = 3;
    extent width = 64;  ///< channels of the first stage; each further one has twice as many, and half the height and width
    resnet_stem stem = resnet_stem::imagenet;
    batch_norm_settings norm{};
};

/// The sizes of a basic block.
struct basic_block_config {
    extent in, out, stride;
    batch_norm_settings norm{};
};

/// The shortcut of a block whose result has another shape than its input.
template <class P>
struct resnet_downsample {
    conv2d_no_bias<at<P, "conv">> conv;
    batch_norm2d<at<P, "bn">> bn;

    resnet_downsample(store& s, const basic_block_config& c)
        : conv(s, c.in, c.out, {1, 1}, {.stride = {c.stride, c.stride}}, halftone::detail::kaiming_fan_out(c.out, {1, 1})),
          bn(s, c.out, c.norm) {}

    /// x: (images, in, height, width); the result is (images, out, height / stride, width / stride), in x's type.
    template <class Context, class X>
    auto operator()(Context&& ctx, const variable<X, 4>& x) const {
        return cast<X>(ctx, bn(ctx, conv(ctx, x)));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.conv, self.bn); }
};

/// relu(bn2(conv2(relu(bn1(conv1(x))))) + x), with windows of 3x3.
template <class P>
struct basic_block {
    conv2d_no_bias<at<P, "conv1">> conv1;
    batch_norm2d<at<P, "bn1">> bn1;
    conv2d_no_bias<at<P, "conv2">> conv2;
    batch_norm2d<at<P, "bn2">> bn2;
    stack<resnet_downsample, P, "downsample"> downsample;  // one or none

    basic_block(store& s, const basic_block_config& c)
        : conv1(s, c.in, c.out, {3, 3}, {.stride = {c.stride, c.stride}, .padding = {1, 1}},
                halftone::detail::kaiming_fan_out(c.out, {3, 3})),
          bn1(s, c.out, c.norm),
          conv2(s, c.out, c.out, {3, 3}, {.padding = {1, 1}}, halftone::detail::kaiming_fan_out(c.out, {3, 3})),
          bn2(s, c.out, c.norm),
          downsample(s, c.in != c.out || c.stride != 1 ? 1 : 0, c) {}

    /// x: (images, in, height, width); the result is (images, out, height / stride, width / stride), in x's type.
    template <class Context, class X>
    auto operator()(Context&& ctx, const variable<X, 4>& x) const {
        const auto y = bn2(ctx, conv2(ctx, relu(ctx, bn1(ctx, conv1(ctx, x)))));
        return map<X>(
            ctx, [](auto a, auto b) { return halftone::relu(a + b); }, y, downsample(ctx, x));
    }
    static decltype(auto) visit(auto&& self, auto&& f) {
        return f(self.conv1, self.bn1, self.conv2, self.bn2, self.downsample);
    }
};

/// A ResNet: a stem, four stages of basic blocks, the mean over height and width, and a head.
template <class P>
class resnet : public model {
  public:
    using policy = P;

    /// Initial weights are distributed as torchvision's; they depend only on the seed, not on the policy. Throws
    /// argument_error for an invalid configuration.
    template <class Device>
    resnet(Device& device, const resnet_config& c, std::uint64_t seed = 0);

    const resnet_config& config() const { return config_; }

    /// The mean cross-entropy, in nats, of batch.labels, (images); a label of -100 does not count. The batch's memory must
    /// stay unchanged until the backward pass has ended. Throws shape_error.
    template <class Context, class Batch>
    auto loss(Context&& ctx, const Batch& batch) const {
        return halftone::detail::image_loss(ctx, "resnet", *this, batch);
    }

    /// The logits of the classes, (images, num_classes), in the `output` of the policy at "fc". images: (images, in_channels,
    /// height, width). Throws shape_error.
    template <class Context, class X>
    auto logits(Context&& ctx, const variable<X, 4>& images) const {
        const auto x = layer4_(ctx, layer3_(ctx, layer2_(ctx, layer1_(ctx, stem(ctx, images)))));
        return fc_(ctx, flatten(ctx, adaptive_avg_pool2d(ctx, x, 1), axes<1, -1>));
    }
    template <class Context>
    auto logits(Context&& ctx, const const_view<float, 4>& images) const {
        return logits(ctx, ctx.root().to_device(images));
    }

    static decltype(auto) visit(auto&& self, auto&& f) {
        return f(self.conv1_, self.bn1_, self.layer1_, self.layer2_, self.layer3_, self.layer4_, self.fc_);
    }

  private:
    static const resnet_config& checked(const resnet_config& c) {
        if (c.width < 1 || c.num_classes < 1)
            fail<argument_error>("resnet: a width of ", c.width, " and ", c.num_classes,
                                 " classes; expected at least 1 of each");
        for (const int depth : c.layers) {
            if (depth < 1) fail<argument_error>("resnet: a stage of ", depth, " blocks; expected at least 1");
        }
        return c;  // the layers check the other values
    }
    static shape<2> stem_window(const resnet_config& c) {
        return c.stem == resnet_stem::imagenet ? shape<2>{7, 7} : shape<2>{3, 3};
    }
    static conv2d_options stem_options(const resnet_config& c) {
        return c.stem == resnet_stem::imagenet ? conv2d_options{.stride = {2, 2}, .padding = {3, 3}}
                                               : conv2d_options{.padding = {1, 1}};
    }
    /// A function from a block's index in a stage to its sizes. In all stages except the first, the first block halves height
    /// and width.
    static auto blocks_of(const resnet_config& c, int stage) {
        const extent out = c.width << stage, before = stage == 0 ? out : out / 2, stride = stage == 0 ? 1 : 2;
        return [out, before, stride, norm = c.norm](int i) {
            return i == 0 ? basic_block_config{before, out, stride, norm} : basic_block_config{out, out, 1, norm};
        };
    }
    template <class Context, class X>
    auto stem(Context&& ctx, const variable<X, 4>& images) const {
        const auto x = relu(ctx, bn1_(ctx, conv1_(ctx, images)));
        return config_.stem == resnet_stem::cifar ? x : max_pool2d(ctx, x, {.kernel_size = 3, .stride = 2, .padding = 1});
    }

    resnet_config config_;
    conv2d_no_bias<at<P, "conv1">> conv1_;
    batch_norm2d<at<P, "bn1">> bn1_;
    stack<basic_block, P, "layer1"> layer1_;
    stack<basic_block, P, "layer2"> layer2_;
    stack<basic_block, P, "layer3"> layer3_;
    stack<basic_block, P, "layer4"> layer4_;
    linear<at<P, "fc">> fc_;
};

// Not `inline`, so that a library can have it.
template <class P>
template <class Device>
resnet<P>::resnet(Device& device, const resnet_config& c, std::uint64_t seed)
    : model(device),
      config_(checked(c)),
      conv1_(parameters(), c.in_channels, c.width, stem_window(c), stem_options(c),
             halftone::detail::kaiming_fan_out(c.width, stem_window(c))),
      bn1_(parameters(), c.width, c.norm),
      layer1_(parameters(), c.layers[0], blocks_of(c, 0)),
      layer2_(parameters(), c.layers[1], blocks_of(c, 1)),
      layer3_(parameters(), c.layers[2], blocks_of(c, 2)),
      layer4_(parameters(), c.layers[3], blocks_of(c, 3)),
      fc_(parameters(), 8 * c.width, c.num_classes, halftone::detail::uniform_fan_in(8 * c.width),
          halftone::detail::uniform_fan_in(8 * c.width)) {
    commit(*this, seed);
}

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
