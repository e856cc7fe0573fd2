// SPDX-License-Identifier: MIT
/// \file
/// A classifier of texts: an encoder, dropout, and a linear layer on the result of the encoder's pooler, as
/// transformers' BertForSequenceClassification.
///
///     ht::nn::classifier<ht::amp_bf16> model{device, {.encoder = {.vocab_size = 30522}, .num_labels = 3}};
///     auto loss = model.loss(tape, batch);             // batch.tokens: (batch, time), batch.labels: (batch)
///     auto logits = model.logits(eval, tokens, types, ht::key_lengths(lengths));       // (batch, num_labels)
///
/// Paths: those of the encoder below "encoder" (nn/encoder.hpp), and "head".
#pragma once

#include <halftone/nn/encoder.hpp>
#include <halftone/nn/labelled_loss.hpp>
#include <halftone/nn/model.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// The sizes of a classifier, and its dropout.
struct classifier_config {
    encoder_config encoder{};
    extent num_labels = 2;
    float classifier_dropout = 0;  ///< dropout of the head's input
};

/// Maps rows of tokens to the logits of num_labels classes.
template <class P>
class classifier : public model {
  public:
    using policy = P;

    /// Initial weights depend only on the seed, not on the policy. Throws argument_error for an invalid configuration.
    template <class Device>
    classifier(Device& device, const classifier_config& c, std::uint64_t seed = 0)
        : model(device),
          config_(checked(c)),
          encoder_(parameters(), c.encoder),
          head_(parameters(), c.encoder.hidden_size, c.num_labels, {.deviation = 0.02f}) {
        commit(*this, seed);
    }

    const classifier_config& config() const { return config_; }
    /// From now on every n-th block stores only its input for the backward pass (nn/stack.hpp); 0: none.
    void checkpoint_every(int n) { encoder_.h.checkpoint_every(n); }

    /// The mean cross-entropy, in nats, of batch.labels; a label of -100 does not count. A batch may have
    /// `token_types`, of the tokens' shape, and `lengths`, (batch), in the device's memory: the tokens after the first
    /// lengths[b] of row b are padding. The batch's memory must stay unchanged until the backward pass has ended.
    /// Throws shape_error and argument_error as encoder does.
    template <class Context, class Batch>
    auto loss(Context&& ctx, const Batch& batch) const {
        const const_view<std::int32_t, 2> tokens = batch.tokens;
        const const_view<std::int32_t, 1> labels = batch.labels;
        halftone::detail::expect_one_each("classifier", "tokens", tokens, "labels", labels);
        const_view<std::int32_t, 2> types{};
        if constexpr (requires { batch.token_types; }) types = batch.token_types;
        if constexpr (requires { batch.lengths; }) {
            const const_view<std::int32_t, 1> lengths = batch.lengths;
            halftone::detail::expect_one_each("classifier", "tokens", tokens, "lengths", lengths);
            if (!ctx.root().device().reaches(lengths.data()))
                fail<argument_error>("classifier: the batch's lengths are in memory that the device cannot read: "
                                     "ht::to_device(device, lengths)");
            return cross_entropy(ctx, logits(ctx, tokens, types, key_lengths(lengths)), labels);
        } else {
            return cross_entropy(ctx, logits(ctx, tokens, types), labels);
        }
    }

    /// The logits of the classes, (batch, num_labels), in the `output` of the policy at "head". Arguments and errors as
    /// for a call of encoder.
    template <class Context, class... F>
    auto logits(Context&& ctx, const const_view<std::int32_t, 2>& tokens,
                const const_view<std::int32_t, 2>& token_types = {}, const F&... functions) const {
        const auto row = encoder_.pool(ctx, encoder_(ctx, tokens, token_types, functions...));
        return head_(ctx, halftone::dropout(ctx, row, {config_.classifier_dropout}));
    }

    /// The encoder without the classifier's head.
    const nn::encoder<at<P, "encoder">>& encode() const { return encoder_; }

    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.encoder_, self.head_); }

  private:
    static const classifier_config& checked(const classifier_config& c) {
        if (c.encoder.num_hidden_layers < 1 || c.num_labels < 1)
            fail<argument_error>("classifier: ", c.encoder.num_hidden_layers, " layers and ", c.num_labels,
                                 " labels; expected at least 1 of each");
        halftone::detail::dropout_probability("classifier: classifier_dropout", c.classifier_dropout);
        return c;  // the layers check the other values
    }

    classifier_config config_;
    nn::encoder<at<P, "encoder">> encoder_;
    linear<at<P, "head">> head_;
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
