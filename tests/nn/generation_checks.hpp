// SPDX-License-Identifier: MIT
/// \file
/// Steps with a key-value cache, and generation, against the computation of whole sequences: the same bits, on any device.
///
///     generation_test::lively<ht::nn::gpt<ht::amp_bf16>> model(device, generation_test::gpt_of(64));
///     generation_test::check_splits(device, model, {40, 3, 64}, 10);
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/nn/gpt.hpp>
#include <halftone/nn/llama.hpp>
#include <halftone/tensor/host_tensor.hpp>

#include "support/gradient_sink.hpp"
#include "support/random.hpp"

namespace generation_test {

namespace ht = halftone;
using ht::extent;
using ids = std::vector<std::int32_t>;

constexpr int vocabulary = 37;

/// Heads of eight elements, which matrix units accept.
inline ht::nn::gpt_config gpt_of(extent context) {
    return {.vocabulary = vocabulary, .context = context, .layers = 2, .heads = 2, .width = 16};
}
/// Four heads of queries share two heads of keys and values.
inline ht::nn::llama_config llama_of(extent context) {
    return {.vocab_size = vocabulary,
            .hidden_size = 32,
            .intermediate_size = 24,
            .num_hidden_layers = 2,
            .num_attention_heads = 4,
            .num_key_value_heads = 2,
            .max_position_embeddings = context};
}

/// A model with weights large enough that its logits differ between tokens.
template <class Model>
struct lively : Model {
    template <class Device, class Config>
    lively(Device& device, const Config& config) : Model(device, config) {
        support::random values(3);
        ht::store& s = this->parameters();
        for (std::size_t i = 0; i < s.entries().size(); ++i) {
            const std::string& path = s.entries()[i].path;
            const bool is_gain = path.ends_with("gain");
            support::write_masters(s, i, values.normals<float>(static_cast<extent>(s.entries()[i].count),
                                                               path.ends_with("tokens") ? 0.8 : 0.3, is_gain ? 1 : 0));
        }
        s.refresh();
    }
};

inline ht::const_view<std::int32_t, 2> row_of(const ids& tokens) {
    return {tokens.data(), {1, static_cast<extent>(tokens.size())}};
}

/// Row `row` of (…, vocabulary) logits.
template <class T, int Rank>
std::vector<T> row_of(const ht::host_tensor<T, Rank>& logits, extent row) {
    const T* const begin = logits.data() + row * vocabulary;
    return {begin, begin + vocabulary};
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// The logits of a whole text, computed alone in one step: without a cache, or with one in eight bits that is new.
template <class Device, class Model>
auto logits_of_text(Device& device, const Model& model, const ids& text, ht::cache_type type) {
    ht::inference eval{device};
    if (type == ht::cache_type::as_computed) return ht::to_host(device, model.logits(eval, row_of(text)));
    ht::key_value_cache cache{device, 1, std::max<extent>(1, static_cast<extent>(text.size())), type};
    const ids offsets{0, static_cast<std::int32_t>(text.size())};
    return ht::to_host(device, model.logits(eval, row_of(text), ht::packed{{offsets.data(), {2}}, &cache}));
}

/// Texts at random, cut into steps at random, some beside others: each step's logits have the bits that the whole text has when
/// it is computed alone in one step. Returns the number of rows that have others.
template <class Model, class Device>
int different_rows(Device& device, const Model& model, const std::vector<extent>& lengths, int rounds,
                   ht::cache_type type = ht::cache_type::as_computed) {
    support::random data(5);
    ht::inference eval{device};
    std::vector<ids> texts;
    std::vector<decltype(logits_of_text(device, model, ids{}, type))> whole;
    for (const extent length : lengths) {
        texts.push_back(data.indices(length, vocabulary));
        whole.push_back(logits_of_text(device, model, texts.back(), type));
    }
    int different = 0;
    ht::key_value_cache cache{device, static_cast<extent>(texts.size()), *std::max_element(lengths.begin(), lengths.end()),
                              type};
    for (int round = 0; round < rounds; ++round) {
        cache.clear();
        for (bool goes_on = true; goes_on;) {
            const int most = data.below(4) == 0 ? 40 : 1;
            ids tokens, offsets{0};
            for (std::size_t i = 0; i < texts.size(); ++i) {
                const extent done = cache.length(static_cast<extent>(i)),
                             count = data.below(4) == 0 ? 0 : std::min<extent>(lengths[i] - done, 1 + data.below(most));
                tokens.insert(tokens.end(), texts[i].begin() + done, texts[i].begin() + done + count);
                offsets.push_back(static_cast<std::int32_t>(tokens.size()));
            }
            const ht::packed rows{{offsets.data(), {static_cast<extent>(offsets.size())}}, &cache};
            const auto logits = ht::to_host(device, model.next_logits(eval, row_of(tokens), rows));
            extent row = 0;
            goes_on = false;
            for (std::size_t i = 0; i < texts.size(); ++i) {
                const extent done = cache.length(static_cast<extent>(i));
                goes_on = goes_on || done < lengths[i];
                if (offsets[i + 1] == offsets[i]) continue;
                different += same_bits(row_of(logits, row++), row_of(whole[i], done - 1)) ? 0 : 1;
            }
            REQUIRE(row == logits.shape()[0]);
        }
    }
    return different;
}

/// The definition of generation: the whole text is computed again for each token.
template <class Model, class Device>
std::vector<ids> by_recomputation(Device& device, const Model& model, const std::vector<ids>& prompts,
                                  const ht::generation_options& o) {
    std::vector<ids> all;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        ids text = prompts[i];
        const auto begin = static_cast<std::ptrdiff_t>(text.size());
        for (extent n = 0; n < o.max_new_tokens; ++n) {
            const auto last = row_of(logits_of_text(device, model, text, o.cache), static_cast<extent>(text.size()) - 1);
            std::vector<float> logits;
            for (const auto& x : last) logits.push_back(static_cast<float>(x));
            ht::detail::penalize_repetition(logits, text, o.repetition_penalty);
            text.push_back(ht::sample_token(logits, o, static_cast<std::uint64_t>(o.first_sequence) + i,
                                            static_cast<std::uint32_t>(text.size())));
            if (std::find(o.eos.begin(), o.eos.end(), text.back()) != o.eos.end()) break;
        }
        all.emplace_back(text.begin() + begin, text.end());
    }
    return all;
}

/// The most likely tokens, and drawn tokens, equal those of recomputation, in a batch and alone.
template <class Model, class Device>
void check_generation(Device& device, const Model& model, extent new_tokens,
                      ht::cache_type type = ht::cache_type::as_computed) {
    ht::inference eval{device};
    const std::vector<ids> prompts{{1, 2, 3}, {9}, {36, 5, 5, 5, 0, 17, 20, 8, 30}};
    for (ht::generation_options o :
         {ht::generation_options{.max_new_tokens = new_tokens, .repetition_penalty = 1.3},
          ht::generation_options{
              .max_new_tokens = new_tokens, .temperature = 1.2, .top_k = 20, .top_p = 0.95, .seed = 4}}) {
        o.cache = type;
        const auto want = by_recomputation(device, model, prompts, o), got = model.generate(eval, prompts, o);
        CHECK(got == want);
        for (std::size_t i = 0; i < prompts.size(); ++i) {
            ht::generation_options alone = o;
            alone.first_sequence = static_cast<extent>(i);
            CHECK(model.generate(eval, std::vector<ids>{prompts[i]}, alone) == std::vector<ids>{want[i]});
        }
    }
}

}  // namespace generation_test
