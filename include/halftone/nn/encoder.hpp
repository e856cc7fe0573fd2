// SPDX-License-Identifier: MIT
/// \file
/// BERT's encoder: tokens, learned positions and token types, blocks with norms after each layer (post-norm), and a
/// pooler (Devlin et al. 2018).
///
///     ht::nn::encoder<ht::at<P, "bert">> encode{store, {.vocab_size = 30522, .hidden_size = 768, .num_attention_heads = 12}};
///     auto x = encode(ctx, tokens);                                        // (batch, time, hidden_size)
///     auto x = encode(ctx, tokens, types, ht::key_lengths(lengths));       // row b has lengths[b] tokens, then padding
///     auto y = encode.pool(ctx, x);                                        // (batch, hidden_size), from the first tokens
///
/// Paths below it: "embed", "embed.types", "embed.norm", "h.*.attn.qkv", "h.*.attn.proj", "h.*.attn.norm",
/// "h.*.mlp.up", "h.*.mlp.down", "h.*.mlp.norm", "pooler". The rows of "qkv" are the weights of transformers' query,
/// key and value, in this order. The stream between blocks has the `stream` of "embed.norm", its `output` without that
/// role. Under ht::amp_bf16 and ht::amp_fp16 it is fp32, as in PyTorch's autocast.
#pragma once

#include <optional>

#include <halftone/autodiff/op/shapes.hpp>
#include <halftone/nn/attention.hpp>
#include <halftone/nn/embedding.hpp>
#include <halftone/nn/mlp.hpp>
#include <halftone/nn/norm.hpp>
#include <halftone/nn/stack.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// The sizes of an encoder, with the names of transformers' BertConfig.
struct encoder_config {
    extent vocab_size = 256;
    extent hidden_size = 256;
    int num_hidden_layers = 4;
    extent num_attention_heads = 4;
    extent intermediate_size = 1024;
    extent max_position_embeddings = 128;
    extent type_vocab_size = 2;
    float layer_norm_eps = 1e-12f;
    std::optional<extent> pad_token_id{};  ///< the token whose row gets no gradient
    float hidden_dropout_prob = 0;         ///< of embeddings, and of the results of attention and perceptron
    attention_strategy strategy = attention_strategy::automatic;
};

/// y = norm(x + attn(x)), then norm(y + mlp(y)). The path of each norm is below that of the layer that it follows.
template <class P>
struct encoder_block {
    attention<at<P, "attn">> attn;
    stream_layer_norm<at<at<P, "attn">, "norm">> attn_norm;
    mlp<at<P, "mlp">, approximate::none> mlp_;
    stream_layer_norm<at<at<P, "mlp">, "norm">> mlp_norm;

    encoder_block(store& s, const encoder_config& c)
        : attn(s, c.hidden_size, c.num_attention_heads, {.deviation = 0.02f}, {.deviation = 0.02f}, {.strategy = c.strategy}),
          attn_norm(s, c.hidden_size, c.layer_norm_eps),
          mlp_(s, c.hidden_size, c.intermediate_size),
          mlp_norm(s, c.hidden_size, c.layer_norm_eps) {
        attn.residual_dropout = mlp_.residual_dropout = c.hidden_dropout_prob;
    }

    /// x: (batch, time, hidden_size); the result has the same shape and type.
    template <class Context, class X, class... F>
    auto operator()(Context&& ctx, const variable<X, 3>& x, const F&... functions) const {
        const auto mixed = attn_norm(ctx, attn(ctx, x, x, functions...));
        return cast<X>(ctx, mlp_norm(ctx, mlp_(ctx, mixed, mixed)));
    }
    static decltype(auto) visit(auto&& self, auto&& f) {
        return f(self.attn, self.attn_norm, self.mlp_, self.mlp_norm);
    }
};

/// BERT's encoder, without a head. It is a layer, to be used as a member of a model (nn/classifier.hpp).
template <class P>
struct encoder {
    embedding<at<P, "embed">> embed;  // tokens and positions
    token_embedding<at<at<P, "embed">, "types">> types;
    stream_layer_norm<at<at<P, "embed">, "norm">> embed_norm;
    stack<encoder_block, P, "h"> h;
    linear<at<P, "pooler">> pooler;
    float dropout_probability;  ///< dropout of embeddings

    /// Throws argument_error for invalid sizes.
    encoder(store& s, const encoder_config& c)
        : embed(s, c.vocab_size, c.max_position_embeddings, c.hidden_size, {.deviation = 0.02f}, c.pad_token_id),
          types(s, c.type_vocab_size, c.hidden_size),
          embed_norm(s, c.hidden_size, c.layer_norm_eps),
          h(s, c.num_hidden_layers, c),
          pooler(s, c.hidden_size, c.hidden_size, {.deviation = 0.02f}),
          dropout_probability(halftone::detail::dropout_probability("encoder: hidden_dropout_prob", c.hidden_dropout_prob)) {}

    /// One vector for each token: (batch, time, hidden_size). tokens and token_types: (batch, time); without types all
    /// tokens have type 0. Functions hide keys, as ht::key_lengths(lengths) and ht::key_padding_mask(padding) do, or
    /// change scores, in every block (kernel/attention/score_mod/score_mod.hpp); the tensors that they read must stay
    /// in the device's memory until the backward pass has ended. Throws shape_error for more tokens than positions, and
    /// argument_error for an id outside its table (on a CPU).
    template <class Context, class... F>
    auto operator()(Context&& ctx, const const_view<std::int32_t, 2>& tokens,
                    const const_view<std::int32_t, 2>& token_types = {}, const F&... functions) const {
        static constexpr std::int32_t first_type = 0;
        const bool has_types = token_types.data() != nullptr;
        if (has_types && !(token_types.shape() == tokens.shape()))
            fail<shape_error>("encoder: tokens are ", tokens.shape(), ", token types ", token_types.shape());
        const auto of_types = types(ctx, has_types ? token_types : const_view<std::int32_t, 2>(&first_type, {1, 1}));
        const auto x = embed_norm(ctx, add(ctx, embed(ctx, tokens), of_types));
        return h(ctx, halftone::dropout(ctx, x, {dropout_probability}), functions...);
    }

    /// A vector that represents a whole row: tanh of a linear layer of its first token. x: (batch, time, hidden_size),
    /// with at least one token; the result is (batch, hidden_size).
    template <class Context, class X>
    auto pool(Context&& ctx, const variable<X, 3>& x) const {
        return tanh(ctx, pooler(ctx, select(ctx, x, axes<1>, 0)));
    }

    static decltype(auto) visit(auto&& self, auto&& f) {
        return f(self.embed, self.types, self.embed_norm, self.h, self.pooler);
    }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
