// SPDX-License-Identifier: MIT
/// \file
/// Llama, and models of the same form (Qwen2, Qwen3, Mistral): a decoder of pre-norm blocks with rms norms, rotary
/// positions, grouped queries and gated perceptrons (Touvron et al. 2023).
///
///     ht::nn::llama<ht::amp_bf16> model{device, {.vocab_size = 256, .hidden_size = 256, .intermediate_size = 688}};
///     auto loss = model.loss(tape, batch);                   // batch.tokens and batch.targets: (batch, time)
///     auto logits = model.logits(eval, tokens);              // (batch, time, vocab_size)
///     auto loss = model.loss(tape, ht::packed_batch{tokens, targets, {offsets}});       // documents in one row
///     auto loss = model.loss(tape, batch, ht::sliding_window{4096});                    // Mistral: functions of scores
///     ht::nn::qwen3<ht::amp_bf16> model{device, {.head_dim = 128}};                     // with norms of queries and keys
///     auto texts = model.generate(eval, prompts, {.max_new_tokens = 64});               // nn/generation.hpp
///
/// Paths: "embed", "h.*.attn.norm", "h.*.attn.qkv", "h.*.attn.proj", "h.*.mlp.norm", "h.*.mlp.gate_up", "h.*.mlp.down",
/// "norm", "head". The rows of "qkv" are the weights of transformers' q_proj, k_proj and v_proj, those of "gate_up" the
/// weights of gate_proj and up_proj, in this order. The residual stream has the type that "embed" returns, its
/// `stream`, as in nn/gpt.hpp.
#pragma once

#include <halftone/autodiff/op/loss.hpp>
#include <halftone/nn/embedding.hpp>
#include <halftone/nn/gated_mlp.hpp>
#include <halftone/nn/generation.hpp>
#include <halftone/nn/language_head.hpp>
#include <halftone/nn/model.hpp>
#include <halftone/nn/norm.hpp>
#include <halftone/nn/rotary_attention.hpp>
#include <halftone/nn/stack.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// The sizes of a Llama, with the names of transformers' LlamaConfig and Qwen2Config.
struct llama_config {
    extent vocab_size = 256;
    extent hidden_size = 256;
    extent intermediate_size = 688;
    int num_hidden_layers = 4;
    extent num_attention_heads = 4;
    extent num_key_value_heads = 0;  ///< 0: num_attention_heads
    extent head_dim = 0;             ///< 0: hidden_size / num_attention_heads
    extent max_position_embeddings = 128;
    float rms_norm_eps = 1e-6f;
    double rope_theta = 10000;
    rotary_scaling rope_scaling{};     ///< the scaling of Llama 3.1
    bool tie_word_embeddings = false;  ///< whether the head's weight is the table of tokens
    bool attention_bias = false;       ///< whether the product of queries, keys and values has a bias, as in Qwen2
    attention_strategy strategy = attention_strategy::automatic;
    keep_logits logits = keep_logits::where_small;  ///< whether the loss stores logits for its gradient
};

/// y = x + attn(norm(x)), then y + mlp(norm(y)). The path of each norm is below that of the layer that it precedes.
template <class P, qk_norm Norm = qk_norm::none>
struct llama_block {
    rms_norm<at<at<P, "attn">, "norm">> attn_norm;
    rotary_attention<at<P, "attn">, Norm> attn;
    rms_norm<at<at<P, "mlp">, "norm">> mlp_norm;
    gated_mlp<at<P, "mlp">> mlp;

    llama_block(store& s, const llama_config& c)
        : attn_norm(s, c.hidden_size, c.rms_norm_eps),
          attn(s, c.hidden_size,
               {.heads = c.num_attention_heads,
                .kv_heads = c.num_key_value_heads,
                .head_size = c.head_dim,
                .qkv_bias = c.attention_bias,
                .norm_eps = c.rms_norm_eps,
                .attention = {.mask = attention_mask::causal, .strategy = c.strategy}}),
          mlp_norm(s, c.hidden_size, c.rms_norm_eps),
          mlp(s, c.hidden_size, c.intermediate_size) {}

    /// x: (batch, time, hidden_size); the result has the same shape and type.
    template <class Context, class X, class... F>
    auto operator()(Context&& ctx, const variable<X, 3>& x, const const_view<float, 2>& table,
                    const documents& packed = {}, const F&... functions) const {
        const auto mixed = attn(ctx, attn_norm(ctx, x), x, table, packed, functions...);
        return mlp(ctx, mlp_norm(ctx, mixed), mixed);
    }
    static decltype(auto) visit(auto&& self, auto&& f) {
        return f(self.attn_norm, self.attn, self.mlp_norm, self.mlp);
    }
};

/// A Llama: a table of tokens, blocks, a norm and a head.
template <class P, qk_norm Norm = qk_norm::none>
class llama : public model {
    template <class Q>
    using block = llama_block<Q, Norm>;

  public:
    using policy = P;

    /// Initial weights depend only on the seed, not on the policy. Throws argument_error for an invalid configuration.
    template <class Device>
    llama(Device& device, const llama_config& c, std::uint64_t seed = 0);

    const llama_config& config() const { return config_; }
    /// From now on every n-th block stores only its input for the backward pass, which recomputes the block; 0: none.
    /// Throws argument_error for a negative number.
    void checkpoint_every(int n) { h_.checkpoint_every(n); }
    /// From now on the blocks whose index i satisfies chosen(i), and no others, store only their input for the backward
    /// pass, which recomputes them.
    template <class Chosen>
    void checkpoint_where(const Chosen& chosen) {
        h_.checkpoint_where(chosen);
    }

    /// From now on the loss stores logits for its gradient as `logits` says.
    void store_logits(keep_logits logits) { config_.logits = logits; }
    /// The multiplications of a token's forward pass, in a row of `length` tokens.
    token_work work(extent length) const {
        const auto width = static_cast<double>(config_.hidden_size);
        const auto heads = static_cast<double>(config_.num_attention_heads);
        const double kv_heads = config_.num_key_value_heads == 0 ? heads : static_cast<double>(config_.num_key_value_heads);
        const double inside =
            config_.head_dim == 0 ? width : heads * static_cast<double>(config_.head_dim);  // all heads' channels
        return {config_.num_hidden_layers,
                width * inside * (2 + 2 * kv_heads / heads) + 3 * width * static_cast<double>(config_.intermediate_size) +
                    inside * static_cast<double>(length),
                static_cast<double>(config_.vocab_size) * width};
    }

    /// The mean cross-entropy, in nats, of the batch's targets; a target of -100 does not count. The batch's memory
    /// must stay unchanged until the backward pass has ended. If the batch has `documents` (ht::packed_batch), its row
    /// consists of these. Functions of attention's scores, such as ht::sliding_window{256}, apply to every block.
    /// Throws shape_error, and argument_error for a token outside the vocabulary, and for documents together with
    /// functions.
    template <class Context, class Batch, class... F>
    auto loss(Context&& ctx, const Batch& batch, const F&... functions) const {
        const const_view<std::int32_t, 2> tokens = batch.tokens, targets = batch.targets;
        if (!(tokens.shape() == targets.shape()))
            fail<shape_error>("llama: tokens are ", tokens.shape(), ", targets ", targets.shape());
        packed rows{};
        if constexpr (requires { batch.documents; }) rows = batch.documents;
        return head_.loss(ctx, hidden(ctx, tokens, rows, functions...), embed_.tokens, targets, config_.logits);
    }

    /// The logits of every token's successor, (batch, time, vocab_size), in the `output` of the policy at "head".
    /// Arguments and errors as for nn::gpt::logits, functions as for loss.
    template <class Context, class... F>
    auto logits(Context&& ctx, const const_view<std::int32_t, 2>& tokens, const packed& rows = {},
                const F&... functions) const {
        return head_.logits(ctx, hidden(ctx, tokens, rows, functions...), embed_.tokens);
    }
    /// The logits after the last token of each document that has tokens, or of each row, as nn::gpt::next_logits.
    template <class Context>
    auto next_logits(Context&& ctx, const const_view<std::int32_t, 2>& tokens, const packed& rows = {}) const {
        return head_.logits(ctx, last_tokens(ctx, hidden(ctx, tokens, rows), rows), embed_.tokens);
    }
    /// The largest number of tokens in a sequence.
    extent context() const { return config_.max_position_embeddings; }
    /// Generates tokens that continue the prompts: ht::generate.
    template <class Context, class OnToken = halftone::detail::no_listener>
    auto generate(Context&& ctx, std::span<const std::vector<std::int32_t>> prompts,
                  const generation_options& options = {}, OnToken&& on_token = {}) const {
        return halftone::generate(ctx, *this, prompts, options, on_token);
    }

    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.embed_, self.h_, self.norm_, self.head_); }

  private:
    static const llama_config& checked(const llama_config& c) {
        if (c.num_hidden_layers < 1 || c.num_attention_heads < 1 || c.max_position_embeddings < 1)
            fail<argument_error>("llama: ", c.num_hidden_layers, " layers of ", c.num_attention_heads, " heads for ",
                                 c.max_position_embeddings, " positions; expected at least 1 of each");
        return c;  // the layers check the other values
    }
    template <class Context, class... F>
    auto hidden(Context&& ctx, const const_view<std::int32_t, 2>& tokens, const packed& rows, const F&... functions) const {
        const documents at = documents_to_device(ctx, rows, tokens.shape(), config_.max_position_embeddings);
        return norm_(ctx, h_(ctx, embed_(ctx, tokens), table_.const_view(), at, functions...));
    }

    llama_config config_;
    token_embedding<at<P, "embed">> embed_;
    stack<block, P, "h"> h_;
    rms_norm<at<P, "norm">> norm_;
    language_head<at<P, "head">> head_;
    tensor<float, 2> table_;  // cosines and sines of all positions
};

/// A Llama whose heads of queries and keys are normalised, as in Qwen3.
template <class P>
using qwen3 = llama<P, qk_norm::rms>;

// Not `inline`, so that a library can contain it.
template <class P, qk_norm Norm>
template <class Device>
llama<P, Norm>::llama(Device& device, const llama_config& c, std::uint64_t seed)
    : model(device),
      config_(checked(c)),
      embed_(parameters(), c.vocab_size, c.hidden_size),
      h_(parameters(), c.num_hidden_layers, c),
      norm_(parameters(), c.hidden_size, c.rms_norm_eps),
      head_(parameters(), c.vocab_size, c.hidden_size, c.tie_word_embeddings),
      table_(rotary_table(device, c.max_position_embeddings,
                          c.head_dim != 0 ? c.head_dim : c.hidden_size / c.num_attention_heads,
                          {c.rope_theta, c.rope_scaling})) {
    using read_by_head = compute_type<policy_within<at<P, "head">, as_given>, op::linear_cross_entropy>;
    if (c.tie_word_embeddings && !contains<typename decltype(embed_.tokens)::compute, read_by_head>)
        parameters().keep_master(embed_.tokens.entry());
    commit(*this, seed);
}

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
