// SPDX-License-Identifier: MIT
/// \file
/// A classifier of texts: the blocks of a GPT, and a linear layer on what they make of a text's last word, which has seen
/// all words before it. Padding comes after a text, where causal attention does not see it.
#pragma once

#include <halftone/amp.hpp>

#include "reviews.hpp"

template <class P>
class review_model : public halftone::nn::model {
  public:
    using policy = P;

    template <class Device>
    review_model(Device& device, halftone::extent vocabulary, halftone::extent classes, const halftone::nn::gpt_config& c,
                 std::uint64_t seed)
        : model(device),
          embed_(parameters(), vocabulary, c.context, c.width),
          h_(parameters(), c.layers, c),
          norm_(parameters(), c.width),
          head_(parameters(), c.width, classes, {.deviation = 0.02f}) {
        commit(*this, seed);
        h_.checkpoint_every(c.checkpointing);
    }

    /// The mean cross-entropy of the labels, in nats a text.
    template <class Context>
    auto loss(Context&& ctx, const review_batch& batch) const {
        return halftone::cross_entropy(ctx, logits(ctx, batch), batch.labels);
    }
    /// (batch, classes)
    template <class Context>
    auto logits(Context&& ctx, const review_batch& batch) const {
        const auto x = norm_(ctx, h_(ctx, embed_(ctx, batch.tokens), halftone::documents{}));  // (batch, time, width)
        const halftone::shape<2> words{x.shape()[0] * x.shape()[1], x.shape()[2]};
        return head_(ctx, halftone::index_select(ctx, halftone::reshape(ctx, x, words), halftone::axes<0>, batch.last));
    }

    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.embed_, self.h_, self.norm_, self.head_); }

  private:
    halftone::nn::embedding<halftone::at<P, "embed">> embed_;
    halftone::nn::stack<halftone::nn::transformer_block, P, "h"> h_;
    halftone::nn::layer_norm<halftone::at<P, "norm">> norm_;
    halftone::nn::linear<halftone::at<P, "head">> head_;
};
