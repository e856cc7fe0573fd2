// SPDX-License-Identifier: MIT
/// \file
/// A GPT: a decoder of pre-norm transformer blocks with learned positions (Radford et al. 2019).
///
///     ht::nn::gpt<ht::amp_bf16> model{device, {.vocabulary = 256, .context = 128, .layers = 4, .heads = 4, .width = 256}};
///     auto loss = model.loss(tape, batch);                   // batch.tokens and batch.targets: (batch, time)
///     auto logits = model.logits(eval, tokens);              // (batch, time, vocabulary)
///     auto loss = model.loss(tape, ht::packed_batch{tokens, targets, {offsets}});       // documents in one row
///     auto texts = model.generate(eval, prompts, {.max_new_tokens = 64});               // nn/generation.hpp
///
/// Paths: "embed", "h.*.attn.norm", "h.*.attn.qkv", "h.*.attn.proj", "h.*.mlp.norm", "h.*.mlp.up", "h.*.mlp.down",
/// "norm", "head"; a rule for "*.norm" matches all norms, one for "h.0" or "h.last" a single block. The head's weight
/// is the token table (tied weights), which is stored by the policy of "embed"; the policy of "head" determines the
/// type in which logits are computed and returned.
///
/// The residual stream has the type of the embedding's result throughout: the `stream` of the policy at "embed", its
/// `output` without that role. The sum of the stream and a layer's contribution is rounded once to that type, whatever the
/// layer's own policy. Under ht::amp_bf16 and ht::amp_fp16 it is fp32, as in PyTorch's autocast.
#pragma once

#include <halftone/autodiff/op/dropout.hpp>
#include <halftone/autodiff/op/loss.hpp>
#include <halftone/nn/attention.hpp>
#include <halftone/nn/embedding.hpp>
#include <halftone/nn/generation.hpp>
#include <halftone/nn/mlp.hpp>
#include <halftone/nn/model.hpp>
#include <halftone/nn/norm.hpp>
#include <halftone/nn/stack.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// The sizes of a GPT, and options of its attention and loss.
struct gpt_config {
    extent vocabulary = 256;
    extent context = 128;
    int layers = 4;
    extent heads = 4;
    extent width = 256;
    attention_strategy strategy = attention_strategy::automatic;
    float dropout =
        0;  ///< dropout of embeddings and of the results of attention and perceptron, not of attention's probabilities
    keep_logits logits = keep_logits::where_small;  ///< whether the loss stores logits for its gradient
    int checkpointing = 0;  ///< every n-th block stores only its input for the backward pass, which recomputes it; 0: none
};

/// y = x + attn(norm(x)), then y + mlp(norm(y)). The path of each norm is below that of the layer that it precedes.
template <class P>
struct transformer_block {
    layer_norm<at<at<P, "attn">, "norm">> attn_norm;
    attention<at<P, "attn">> attn;
    layer_norm<at<at<P, "mlp">, "norm">> mlp_norm;
    mlp<at<P, "mlp">> mlp_;

    // Weights of layers that add to the residual stream are initialised smaller by the square root of their number
    // (GPT-2).
    transformer_block(store& s, const gpt_config& c)
        : transformer_block(s, c, initial{.deviation = 0.02f},
                            initial{.deviation = 0.02f / std::sqrt(2.0f * static_cast<float>(c.layers))}) {}

    /// x: (batch, time, width); the result has the same shape and type.
    template <class Context, class X>
    auto operator()(Context&& ctx, const variable<X, 3>& x, const documents& packed = {}) const {
        const auto mixed = attn(ctx, attn_norm(ctx, x), x, packed.sequences);
        return mlp_(ctx, mlp_norm(ctx, mixed), mixed);
    }
    static decltype(auto) visit(auto&& self, auto&& f) {
        return f(self.attn_norm, self.attn, self.mlp_norm, self.mlp_);
    }

  private:
    transformer_block(store& s, const gpt_config& c, const initial& inner, const initial& projection)
        : attn_norm(s, c.width),
          attn(s, c.width, c.heads, inner, projection, {.mask = attention_mask::causal, .strategy = c.strategy}),
          mlp_norm(s, c.width),
          mlp_(s, c.width, 4 * c.width, inner, projection) {
        attn.residual_dropout = mlp_.residual_dropout = c.dropout;
    }
};

/// The head of a language model: logits = x tableᵀ, where the table belongs to another layer and is stored by Table.
template <class P, class Table>
struct tied_head {
    using policy = P;
    using operation = op::linear_cross_entropy;
    using reads = Table;

    extent classes, width;  // the table's shape

    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

/// A GPT: embeddings, `layers` blocks, a norm and a head that shares the token table.
template <class P>
class gpt : public model {
  public:
    using policy = P;

    /// Initial weights depend only on the seed, not on the policy. Throws argument_error for an invalid configuration.
    template <class Device>
    gpt(Device& device, const gpt_config& c, std::uint64_t seed = 0);

    const gpt_config& config() const { return config_; }
    /// From now on every n-th block stores only its input for the backward pass, which recomputes the block; 0: none.
    /// Throws argument_error for a negative number.
    void checkpoint_every(int n) {
        h_.checkpoint_every(n);
        config_.checkpointing = n;
    }
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
        const auto width = static_cast<double>(config_.width);
        return {config_.layers, 12 * width * width + width * static_cast<double>(length),
                static_cast<double>(config_.vocabulary) * width};
    }

    /// The mean cross-entropy, in nats, of the batch's targets; targets of -100 do not count. The batch's memory must
    /// stay unchanged until the backward pass has run. If the batch has `documents` (ht::packed_batch), its row
    /// consists of these. Throws shape_error, and argument_error for a token outside the vocabulary.
    template <class Context, class Batch>
    auto loss(Context&& ctx, const Batch& batch) const {
        const const_view<std::int32_t, 2> tokens = batch.tokens, targets = batch.targets;
        if (!(tokens.shape() == targets.shape()))
            fail<shape_error>("gpt: tokens are ", tokens.shape(), ", targets ", targets.shape());
        return halftone::linear_cross_entropy<layer_roles<typename head::policy, op::linear_cross_entropy, Context>>(
            ctx, hidden(ctx, tokens, packed_of(batch)), embed_.tokens, targets, config_.logits);
    }

    /// The logits of every token's successor, (batch, time, vocabulary), in the `output` type of the policy at "head".
    /// `tokens`: (batch, time), ids below the vocabulary; with packed documents `rows`, (1, time). Throws shape_error
    /// for more tokens in a row, or in a document, than the context, and argument_error for an id outside the
    /// vocabulary, unless only a GPU can read it: then its logits are NaN.
    template <class Context>
    auto logits(Context&& ctx, const const_view<std::int32_t, 2>& tokens, const packed& rows = {}) const {
        return halftone::linear<layer_roles<typename head::policy, typename head::operation, Context>>(
            ctx, hidden(ctx, tokens, rows), embed_.tokens, absent{});
    }
    /// The logits after the last token of each document that has tokens, or of each row: (documents, vocabulary). For
    /// inference contexts; the offsets of `rows` are in host memory, and its cache stores keys and values. Throws as
    /// logits does.
    template <class Context>
    auto next_logits(Context&& ctx, const const_view<std::int32_t, 2>& tokens, const packed& rows = {}) const {
        return halftone::linear<layer_roles<typename head::policy, typename head::operation, Context>>(
            ctx, last_tokens(ctx, hidden(ctx, tokens, rows), rows), embed_.tokens, absent{});
    }
    /// The largest number of tokens in a sequence.
    extent context() const { return config_.context; }
    /// Generates tokens that continue the prompts: ht::generate.
    template <class Context, class OnToken = halftone::detail::no_listener>
    auto generate(Context&& ctx, std::span<const std::vector<std::int32_t>> prompts,
                  const generation_options& options = {}, OnToken&& on_token = {}) const {
        return halftone::generate(ctx, *this, prompts, options, on_token);
    }

    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.embed_, self.h_, self.norm_, self.head_); }

  private:
    using head = tied_head<at<P, "head">, typename decltype(embedding<at<P, "embed">>::tokens)::storage>;

    template <class Context>
    auto hidden(Context&& ctx, const const_view<std::int32_t, 2>& tokens, const packed& rows) const {
        const documents at = documents_to_device(ctx, rows, tokens.shape(), config_.context);
        return norm_(ctx, h_(ctx, halftone::dropout(ctx, embed_(ctx, tokens, at), {config_.dropout}), at));
    }
    template <class Batch>
    static packed packed_of(const Batch& batch) {
        if constexpr (requires { batch.documents; }) {
            return batch.documents;
        } else {
            return {};
        }
    }

    static const gpt_config& checked(const gpt_config& c) {
        const auto check_range = [](const char* what, extent value, extent most) {
            if (value < 1 || value > most) fail<argument_error>("gpt: ", what, " is ", value, "; expected 1 to ", most);
        };
        constexpr extent most = extent{1} << 31;
        check_range("vocabulary", c.vocabulary, most);
        check_range("context", c.context, most);
        check_range("layers", c.layers, 1 << 16);
        check_range("heads", c.heads, most);
        check_range("width", c.width, most);
        halftone::detail::dropout_probability("gpt: dropout", c.dropout);
        if (c.width % c.heads != 0) fail<argument_error>("gpt: ", c.heads, " heads do not divide a width of ", c.width);
        return c;  // the attention layers check what their strategy supports
    }

    gpt_config config_;
    embedding<at<P, "embed">> embed_;
    stack<transformer_block, P, "h"> h_;
    layer_norm<at<P, "norm">> norm_;
    head head_;
};

// Not `inline`, so that its instantiations can be in halftone::compiled.
template <class P>
template <class Device>
gpt<P>::gpt(Device& device, const gpt_config& c, std::uint64_t seed)
    : model(device),
      config_(checked(c)),
      embed_(parameters(), c.vocabulary, c.context, c.width),
      h_(parameters(), c.layers, c),
      norm_(parameters(), c.width),
      head_{c.vocabulary, c.width} {
    checkpoint_every(c.checkpointing);
    using read_by_head = compute_type<policy_within<typename head::policy, as_given>, typename head::operation>;
    if (!contains<typename decltype(embed_.tokens)::compute, read_by_head>)
        parameters().keep_master(embed_.tokens.entry());
    commit(*this, seed);
}

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
