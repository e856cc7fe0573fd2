// SPDX-License-Identifier: MIT
/// \file
/// Generates text with a language model, token by token, with a key-value cache, for a batch of prompts of various
/// lengths.
///
///     ht::inference eval{device};
///     const std::vector<std::vector<std::int32_t>> prompts{{10, 20, 30}, {40}};
///     auto texts = model.generate(eval, prompts, {.max_new_tokens = 64});                         // greedy
///     auto texts = ht::generate(eval, model, prompts, {.temperature = 0.8, .top_p = 0.95, .seed = 1});      // any model
///
/// A model has these functions:
///
///     model.logits(ctx, tokens, packed)             tokens (1, time); logits (1, time, vocabulary)
///     model.next_logits(ctx, tokens, packed)        optional: only for each document's last token, (documents, vocabulary)
///     model.context()                               optional: the largest number of tokens in a sequence
///
/// It passes `packed` to documents_to_device (autodiff/op/packed.hpp), and the result of that to its layers, so that
/// self_attention stores keys and values.
///
/// The first step takes all prompts, concatenated in one row; each further step takes one token of every sequence that
/// has not ended. The tokens of a sequence depend only on its prompt, the options and its index: to the last bit they
/// are those of a full recomputation, whatever the other prompts are; with keys and values in eight bits, those of a
/// recomputation with a new cache in eight bits (tensor/key_value_cache.hpp).
#pragma once

#include <type_traits>

#include <halftone/autodiff/op/packed.hpp>
#include <halftone/nn/token_sampler.hpp>
#include <halftone/tensor/host_tensor.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The sequences so far, and the tokens that the next step takes.
class generation {
  public:
    using texts = std::vector<std::vector<std::int32_t>>;

    /// most: the number of tokens in the model's context. Throws argument_error.
    generation(std::span<const std::vector<std::int32_t>> prompts, const generation_options& o, extent most);

    extent sequences() const { return static_cast<extent>(prompts_.size()); }
    extent capacity() const { return capacity_; }
    bool is_done() const { return going_on_.empty(); }

    /// Computes the tokens of the next step and the offsets of all sequences in them; both stay valid until the
    /// following call.
    void begin_step();
    const_view<std::int32_t, 2> tokens() const { return {tokens_.data(), {1, static_cast<extent>(tokens_.size())}}; }
    const_view<std::int32_t, 1> offsets() const { return {offsets_.data(), {static_cast<extent>(offsets_.size())}}; }

    /// Takes the logits of the next tokens, (sequences that have not ended, vocabulary).
    template <class T>
    void take(const host_tensor<T, 2>& logits) {
        std::vector<float> row(static_cast<std::size_t>(logits.shape()[1]));
        std::vector<std::size_t> rest;
        for (std::size_t r = 0; r < going_on_.size(); ++r) {
            for (std::size_t j = 0; j < row.size(); ++j)
                row[j] = static_cast<float>(logits(static_cast<extent>(r), static_cast<extent>(j)));
            if (take_row(going_on_[r], row)) rest.push_back(going_on_[r]);
        }
        going_on_ = std::move(rest);
    }

    texts result() { return std::move(new_tokens_); }

  private:
    /// Appends the next token of sequence i; returns whether the sequence continues.
    bool take_row(std::size_t i, std::span<const float> logits);

    generation_options options_;
    std::span<const std::vector<std::int32_t>> prompts_;
    texts new_tokens_;
    std::vector<std::size_t> going_on_;  // in ascending order
    extent capacity_;
    std::vector<std::int32_t> tokens_, offsets_;
};

/// The logits after the last token of each document that has tokens, by the model's next_logits or selected from those
/// of all tokens.
template <class Context, class Model>
auto next_logits_of(Context&& context, const Model& model, const const_view<std::int32_t, 2>& tokens, const packed& rows) {
    if constexpr (requires { model.next_logits(context, tokens, rows); }) {
        return model.next_logits(context, tokens, rows);
    } else {
        static_assert(requires { model.logits(context, tokens, rows); },
                      "halftone: generate: a model has logits(ctx, tokens, packed), (1, time, vocabulary) from tokens (1, time), "
                      "or next_logits, and passes `packed` to ht::documents_to_device");
        return last_tokens(context, model.logits(context, tokens, rows), rows);
    }
}

}  // namespace detail

/// Generates tokens that continue each prompt: options.max_new_tokens, or fewer if options.eos is generated, which is
/// then the last one. Runs in inference contexts. If there are no prompts the result is empty; if max_new_tokens is 0
/// it has empty sequences. Throws argument_error for options out of range, an empty prompt, a prompt that is too long
/// for the context together with the requested tokens, a token outside the vocabulary, and logits with a NaN. Source:
/// transformers' model.generate, which also returns the prompts.
template <class Context, class Model>
std::vector<std::vector<std::int32_t>> generate(Context&& context, const Model& model,
                                                std::span<const std::vector<std::int32_t>> prompts,
                                                const generation_options& options = {}) {
    static_assert(!std::remove_cvref_t<Context>::records,
                  "halftone: generate records nothing: call it in an inference context, ht::inference eval{device}");
    extent most = 2147483647;
    if constexpr (requires { model.context(); }) most = model.context();
    detail::generation texts(prompts, options, most);
    auto& device = context.root().device();
    key_value_cache cache{device, texts.sequences(), texts.capacity(), options.cache};
    while (!texts.is_done()) {
        texts.begin_step();
        const auto logits = detail::next_logits_of(context, model, texts.tokens(), packed{texts.offsets(), &cache});
        texts.take(to_host(device, logits));
    }
    return texts.result();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/nn/generation.body.hpp>
#endif
