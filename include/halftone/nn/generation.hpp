// SPDX-License-Identifier: MIT
/// \file
/// Generates text with a language model, token by token, with a key-value cache, for a batch of prompts of various
/// lengths.
///
///     ht::inference eval{device};
///     const std::vector<std::vector<std::int32_t>> prompts{{10, 20, 30}, {40}};
///     auto texts = model.generate(eval, prompts, {.max_new_tokens = 64});                         // greedy
///     auto texts = ht::generate(eval, model, prompts, {.temperature = 0.8, .top_p = 0.95, .seed = 1});      // any model
///     ht::generate(eval, model, prompts, {.eos = {2}}, [&](std::size_t text, std::int32_t token) { ... });  // as they come
///     ht::prompt_cache cache{device, 1, model.context()};
///     ht::generate(eval, model, cache, prompts);                   // again with longer prompts: only what is new is computed
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
/// are those of a full recomputation, whatever the other prompts are and whatever a cache has kept; with keys and values
/// in eight bits, those of a recomputation with a new cache in eight bits (tensor/key_value_cache.hpp).
#pragma once

#include <type_traits>

#include <halftone/autodiff/op/packed.hpp>
#include <halftone/nn/token_sampler.hpp>
#include <halftone/tensor/host_tensor.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {
class generation;
}

/// The keys and values of texts, kept from one call of generate to the next: of a prompt that begins as the text before did,
/// such as a conversation with one turn more, only the rest is computed. What differs is computed again, so that the tokens
/// are those without a cache. It serves one model: clear() it when the model's parameters have changed.
class prompt_cache {
  public:
    /// Room for `sequences` texts of up to `capacity` tokens, in the memory of the device, which must outlive the cache.
    /// Throws argument_error.
    template <class Device>
    prompt_cache(Device& device, extent sequences, extent capacity, cache_type type = cache_type::as_computed)
        : cache_{device, sequences, capacity, type}, tokens_(static_cast<std::size_t>(cache_.sequences())) {}

    extent sequences() const { return cache_.sequences(); }
    extent capacity() const { return cache_.capacity(); }
    /// How many tokens of a text are kept. Throws argument_error for a sequence out of range.
    extent length(extent sequence) const {
        cache_.length(sequence);  // checks the range
        return static_cast<extent>(tokens_[static_cast<std::size_t>(sequence)].size());
    }
    std::size_t bytes() const { return cache_.bytes(); }  ///< of the keys and values of all layers
    /// Forgets all texts; the memory stays allocated.
    void clear() { tokens_.assign(tokens_.size(), {}); }

  private:
    friend class detail::generation;
    key_value_cache cache_;
    std::vector<std::vector<std::int32_t>> tokens_;  // those whose keys and values are in the cache
    bool is_in_use_ = false;
};

namespace detail {

/// The sequences so far, and the tokens that the next step takes.
class generation {
  public:
    using texts = std::vector<std::vector<std::int32_t>>;

    /// most: the number of tokens in the model's context. Throws argument_error.
    generation(std::span<const std::vector<std::int32_t>> prompts, const generation_options& o, extent most);
    generation(const generation&) = delete;
    generation& operator=(const generation&) = delete;
    ~generation() {
        if (cache_ != nullptr) cache_->is_in_use_ = false;
    }

    extent sequences() const { return static_cast<extent>(texts_.size()); }
    extent capacity() const { return capacity_; }
    bool is_done() const { return going_on_.empty(); }

    /// Takes over what a cache has of the prompts; until give_back the cache has no texts. Returns its keys and values.
    /// Throws argument_error for a cache that is too small, and state_error for one that another generation has.
    key_value_cache& take(prompt_cache& cache);
    void give_back();

    /// Computes the tokens of the next step and the offsets of all sequences in them; both stay valid until the
    /// following call.
    void begin_step();
    const_view<std::int32_t, 2> tokens() const { return {tokens_.data(), {1, static_cast<extent>(tokens_.size())}}; }
    const_view<std::int32_t, 1> offsets() const { return {offsets_.data(), {static_cast<extent>(offsets_.size())}}; }

    /// Takes the logits of the next tokens, (sequences that have not ended, vocabulary), and calls on_token(sequence, token)
    /// for each, which may end its text.
    template <class T, class OnToken>
    void take(const host_tensor<T, 2>& logits, OnToken& on_token) {
        std::vector<float> row(static_cast<std::size_t>(logits.shape()[1]));
        std::vector<std::size_t> rest;
        for (std::size_t r = 0; r < going_on_.size(); ++r) {
            for (std::size_t j = 0; j < row.size(); ++j)
                row[j] = static_cast<float>(logits(static_cast<extent>(r), static_cast<extent>(j)));
            const std::size_t i = going_on_[r];
            bool goes_on = take_row(i, row);
            if constexpr (std::is_void_v<decltype(on_token(i, std::int32_t{}))>)
                on_token(i, texts_[i].back());
            else if (!on_token(i, texts_[i].back()))
                goes_on = false;
            if (goes_on) rest.push_back(i);
        }
        going_on_ = std::move(rest);
    }

    /// The new tokens.
    texts result() const;

  private:
    /// Appends the next token of sequence i; returns whether the sequence continues.
    bool take_row(std::size_t i, std::span<float> logits);

    generation_options options_;
    std::vector<std::size_t> given_;     // the prompts' lengths: a caller may change its prompts as tokens come
    texts texts_;                        // the prompts, and what follows them
    std::vector<std::size_t> computed_;  // how many tokens of each text have keys and values
    std::vector<std::size_t> going_on_;  // in ascending order
    extent capacity_;
    std::vector<std::int32_t> tokens_, offsets_;
    prompt_cache* cache_ = nullptr;
};

struct no_listener {
    void operator()(std::size_t, std::int32_t) const {}
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

/// The prompts' generation so far, within the model's context.
template <class Context, class Model>
generation begin_generation(Context&&, const Model& model, std::span<const std::vector<std::int32_t>> prompts,
                            const generation_options& options) {
    static_assert(!std::remove_cvref_t<Context>::records,
                  "halftone: generate records nothing: call it in an inference context, ht::inference eval{device}");
    extent most = 2147483647;
    if constexpr (requires { model.context(); }) most = model.context();
    return {prompts, options, most};
}

/// Computes until no text goes on.
template <class Context, class Model, class OnToken>
void run_generation(Context&& context, const Model& model, generation& texts, key_value_cache& cache,
                    OnToken& on_token) {
    using said = decltype(on_token(std::size_t{}, std::int32_t{}));
    static_assert(std::is_void_v<said> || std::is_same_v<std::remove_cvref_t<said>, bool>,
                  "halftone: generate: on_token(std::size_t text, std::int32_t token) returns nothing, or whether the "
                  "text goes on: "
                  "a bool");
    while (!texts.is_done()) {
        texts.begin_step();
        const auto logits = next_logits_of(context, model, texts.tokens(), packed{texts.offsets(), &cache});
        texts.take(to_host(context.root().device(), logits), on_token);
    }
}

}  // namespace detail

/// Generates tokens that continue each prompt: options.max_new_tokens, or fewer if one of options.eos is generated, which is
/// then the last one. Calls on_token(index of the prompt, token) for each token as it is chosen; if that returns a bool, false
/// ends the text behind this token. Runs in inference contexts. If there are no prompts the result is empty; if max_new_tokens
/// is 0 it has empty sequences. Throws argument_error for options out of range, an empty prompt, a prompt that is too long
/// for the context together with the requested tokens, a token outside the vocabulary, and logits with a NaN. Source:
/// transformers' model.generate, which also returns the prompts.
template <class Context, class Model, class OnToken = detail::no_listener>
std::vector<std::vector<std::int32_t>> generate(Context&& context, const Model& model,
                                                std::span<const std::vector<std::int32_t>> prompts,
                                                const generation_options& options = {}, OnToken&& on_token = {}) {
    detail::generation texts = detail::begin_generation(context, model, prompts, options);
    key_value_cache cache{context.root().device(), texts.sequences(), texts.capacity(), options.cache};
    detail::run_generation(context, model, texts, cache, on_token);
    return texts.result();
}

/// Generates with a cache that keeps keys and values for the next call, in its own type in place of options.cache. Also throws
/// argument_error if there are not as many prompts as the cache has sequences, or one is too long for it, and state_error if
/// another call that has not ended uses it.
template <class Context, class Model, class OnToken = detail::no_listener>
std::vector<std::vector<std::int32_t>> generate(Context&& context, const Model& model, prompt_cache& cache,
                                                std::span<const std::vector<std::int32_t>> prompts,
                                                const generation_options& options = {}, OnToken&& on_token = {}) {
    detail::generation texts = detail::begin_generation(context, model, prompts, options);
    detail::run_generation(context, model, texts, texts.take(cache), on_token);
    texts.give_back();
    return texts.result();
}

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/nn/generation.body.hpp>
#endif
