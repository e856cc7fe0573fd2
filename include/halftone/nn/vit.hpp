// SPDX-License-Identifier: MIT
/// \file
/// A vision transformer, as torchvision's VisionTransformer (Dosovitskiy et al. 2020).
///
///     ht::nn::vit<ht::amp_bf16> model{device, {.image_size = 32, .patch_size = 4, .num_layers = 6, .num_heads = 4,
///                                              .hidden_dim = 128, .mlp_dim = 512, .num_classes = 10}};
///     auto loss = model.loss(tape, batch);                   // batch.images: (images, 3, image_size, image_size)
///     auto logits = model.logits(eval, images);              // (images, num_classes)
///
/// Paths, and torchvision's below them: "embed" (class_token, encoder.pos_embedding), "embed.proj" (conv_proj),
/// "h.*.attn.norm" (ln_1), "h.*.attn.qkv" and "h.*.attn.proj" (self_attention's in_proj and out_proj), "h.*.mlp.norm"
/// (ln_2), "h.*.mlp.up" and "h.*.mlp.down" (mlp.0 and mlp.3), "norm" (encoder.ln), "head" (heads.head). The residual stream
/// has the `stream` of the policy at "embed", its `output` without that role; under ht::amp_bf16 and ht::amp_fp16 it is
/// fp32, as in PyTorch's autocast.
#pragma once

#include <halftone/autodiff/op/dropout.hpp>
#include <halftone/autodiff/op/shapes.hpp>
#include <halftone/nn/attention.hpp>
#include <halftone/nn/conv2d.hpp>
#include <halftone/nn/labelled_loss.hpp>
#include <halftone/nn/mlp.hpp>
#include <halftone/nn/model.hpp>
#include <halftone/nn/norm.hpp>
#include <halftone/nn/stack.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// The sizes of a vision transformer, by the names of torchvision's VisionTransformer.
struct vit_config {
    extent image_size = 224;  ///< height and width
    extent patch_size = 16;
    int num_layers = 12;
    extent num_heads = 12;
    extent hidden_dim = 768;
    extent mlp_dim = 3072;
    float dropout = 0;  ///< of embeddings and of the results of attention and perceptron; not within the perceptron
    extent num_classes = 1000;
    extent in_channels = 3;
    attention_strategy strategy = attention_strategy::automatic;
};

/// Images as rows of tokens: a class token, and one for each patch; each has a learned position added.
template <class P>
struct patch_embedding {
    using policy = P;
    using operation = op::group_norm;  // class token and positions are stored as a norm's gain: fp32 under a mixed policy
    using computes = op::embedding;
    static constexpr bool owns_parameters = true;
    static constexpr bool gives_stream = true;  // policy/ledger.hpp

    conv2d<at<P, "proj">> proj;
    parameter<storage_signature<P, operation>, 3> class_token;  // (1, 1, hidden_dim)
    parameter<storage_signature<P, operation>, 3> positions;    // (1, 1 + patches, hidden_dim)

    patch_embedding(store& s, const vit_config& c)
        : proj(s, c.in_channels, c.hidden_dim, {c.patch_size, c.patch_size}, {.stride = {c.patch_size, c.patch_size}},
               {.deviation = 1.0f / std::sqrt(static_cast<float>(c.in_channels * c.patch_size * c.patch_size))}),
          class_token(s.add<P, operation>("class_token", shape<3>{1, 1, c.hidden_dim}, initial{})),
          positions(s.add<P, operation>("positions", shape<3>{1, 1 + tokens(c), c.hidden_dim}, initial{.deviation = 0.02f})) {}

    /// x: (images, in_channels, image_size, image_size); the result is (images, 1 + patches, hidden_dim), in the policy's
    /// `stream`.
    template <class Context, class X>
    auto operator()(Context&& ctx, const variable<X, 4>& x) const {
        using Y = typename stream_roles<P, computes, Context>::output;
        const auto patches = transpose(ctx, flatten(ctx, proj(ctx, x), axes<2, 3>), axes<1, 2>);
        const shape<3> one_each{x.shape()[0], 1, class_token.shape()[2]};
        const auto rows = cat(ctx, axes<1>, expand(ctx, as_variable(ctx, class_token), one_each), patches);
        return add<Y>(ctx, rows, as_variable(ctx, positions));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.proj); }

  private:
    static extent tokens(const vit_config& c) { return (c.image_size / c.patch_size) * (c.image_size / c.patch_size); }
};

/// x = x + attn(norm(x)), then x + mlp(norm(x)). The path of each norm is below that of the layer after it.
template <class P>
struct vit_block {
    layer_norm<at<at<P, "attn">, "norm">> attn_norm;
    attention<at<P, "attn">> attn;
    layer_norm<at<at<P, "mlp">, "norm">> mlp_norm;
    mlp<at<P, "mlp">, approximate::none> mlp_;

    vit_block(store& s, const vit_config& c)
        : attn_norm(s, c.hidden_dim, 1e-6f),
          attn(s, c.hidden_dim, c.num_heads, uniform(6, 4 * c.hidden_dim), uniform(1, c.hidden_dim),
               {.strategy = c.strategy}),
          mlp_norm(s, c.hidden_dim, 1e-6f),
          mlp_(s, c.hidden_dim, c.mlp_dim, uniform(6, c.hidden_dim + c.mlp_dim), uniform(6, c.hidden_dim + c.mlp_dim)) {
        attn.residual_dropout = mlp_.residual_dropout = c.dropout;
    }

    /// x: (images, tokens, hidden_dim); the result has x's shape and type.
    template <class Context, class X>
    auto operator()(Context&& ctx, const variable<X, 3>& x) const {
        const auto mixed = attn(ctx, attn_norm(ctx, x), x);
        return mlp_(ctx, mlp_norm(ctx, mixed), mixed);
    }
    static decltype(auto) visit(auto&& self, auto&& f) {
        return f(self.attn_norm, self.attn, self.mlp_norm, self.mlp_);
    }

  private:
    /// Uniform up to the square root of a / b: torch's xavier_uniform_ if a is 6 and b is inputs + outputs.
    static initial uniform(float a, extent b) { return {.bound = std::sqrt(a / static_cast<float>(b))}; }
};

/// A vision transformer: an embedding of patches, blocks, and a norm and a head on the class token.
template <class P>
class vit : public model {
  public:
    using policy = P;

    /// Initial weights are distributed as torchvision's, those of the head are zeros; they depend only on the seed, not on
    /// the policy. Throws argument_error for an invalid configuration.
    template <class Device>
    vit(Device& device, const vit_config& c, std::uint64_t seed = 0);

    const vit_config& config() const { return config_; }

    /// The mean cross-entropy, in nats, of batch.labels, (images); a label of -100 does not count. The batch's memory must
    /// stay unchanged until the backward pass has ended. Throws shape_error.
    template <class Context, class Batch>
    auto loss(Context&& ctx, const Batch& batch) const {
        return halftone::detail::image_loss(ctx, "vit", *this, batch);
    }

    /// The logits of the classes, (images, num_classes), in the `output` of the policy at "head". images: (images, in_channels,
    /// image_size, image_size). Throws shape_error.
    template <class Context, class X>
    auto logits(Context&& ctx, const variable<X, 4>& images) const {
        const shape<4> expected{images.shape()[0], config_.in_channels, config_.image_size, config_.image_size};
        if (!(images.shape() == expected)) fail<shape_error>("vit: images are ", images.shape(), "; expected ", expected);
        const auto x = h_(ctx, halftone::dropout(ctx, embed_(ctx, images), {config_.dropout}));
        return head_(ctx, norm_(ctx, select(ctx, x, axes<1>, 0)));
    }
    template <class Context>
    auto logits(Context&& ctx, const const_view<float, 4>& images) const {
        return logits(ctx, ctx.root().to_device(images));
    }

    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.embed_, self.h_, self.norm_, self.head_); }

  private:
    static const vit_config& checked(const vit_config& c) {
        if (c.num_layers < 1 || c.num_heads < 1 || c.num_classes < 1)
            fail<argument_error>("vit: ", c.num_layers, " layers of ", c.num_heads, " heads and ", c.num_classes,
                                 " classes; expected at least 1 of each");
        if (c.patch_size < 1 || c.image_size < c.patch_size || c.image_size % c.patch_size != 0)
            fail<argument_error>("vit: patches of ", c.patch_size, " do not divide images of ", c.image_size);
        halftone::detail::dropout_probability("vit: dropout", c.dropout);
        return c;  // the layers check the other values
    }

    vit_config config_;
    patch_embedding<at<P, "embed">> embed_;
    stack<vit_block, P, "h"> h_;
    layer_norm<at<P, "norm">> norm_;
    linear<at<P, "head">> head_;
};

// Not `inline`, so that a library can have it.
template <class P>
template <class Device>
vit<P>::vit(Device& device, const vit_config& c, std::uint64_t seed)
    : model(device),
      config_(checked(c)),
      embed_(parameters(), c),
      h_(parameters(), c.num_layers, c),
      norm_(parameters(), c.hidden_dim, 1e-6f),
      head_(parameters(), c.hidden_dim, c.num_classes, initial{}) {
    commit(*this, seed);
}

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
