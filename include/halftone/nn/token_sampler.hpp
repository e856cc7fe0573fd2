// SPDX-License-Identifier: MIT
/// \file
/// Chooses a token from a model's logits: the most probable one, or one drawn at random from those that top-k and top-p
/// select.
///
///     const ht::generation_options o{.temperature = 0.8, .top_k = 50, .top_p = 0.95, .seed = 42};
///     const std::int32_t token = ht::sample_token(logits, o, sequence, position);
///
/// Definition, in double, with the logits x_i:
///
///     weight_i = exp((x_i - max x) / temperature)
///     top-k: selects the k largest logits; of equal ones the one with the lower id comes first
///     top-p: selects of these, from the largest on, the fewest whose weights are at least top_p of the sum of their weights
///     drawn: the first id at which the cumulative sum of the selected weights, in the order of ids, exceeds u times their sum
///
/// where u in [0, 1) has 53 random bits of Philox4x32-10 and depends only on (seed, sequence, position) (Fan et al.
/// 2018, Holtzman et al. 2020; the order of top-k and top-p is that of transformers). Temperature 0 chooses the largest
/// logit, of equal ones the one with the lower id.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <halftone/error.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/tensor/key_value_cache.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Options of generation, with the names of transformers' GenerationConfig.
struct generation_options {
    extent max_new_tokens = 20;  ///< for each prompt, 0 or more
    double temperature = 0;      ///< divides the logits; 0: the most probable token, without drawing
    extent top_k = 0;            ///< the number of most probable tokens that are drawn from; 0: all
    double top_p = 1;            ///< the probability of the most probable tokens that are drawn from, above 0 and at most 1
    double repetition_penalty =
        1;  ///< divides positive logits, and multiplies others, of tokens that the text has already
    std::uint64_t seed = 0;
    std::vector<std::int32_t> eos{};  ///< tokens that end a text; the result includes the one that does
    extent first_sequence = 0;  ///< the index of the first prompt, if the prompts are a part of a list: draws depend on it
    cache_type cache = cache_type::as_computed;  ///< how keys and values are stored (tensor/key_value_cache.hpp)
};

namespace detail {

/// The tensor number (number/philox.hpp) from which the random numbers of generation are derived.
inline constexpr std::uint32_t generation_stream = 0x67656e65;

void check_generation(const generation_options& o);

/// Divides the positive logits of the tokens of a text, its prompt included, by the penalty, and multiplies the others by it
/// (Keskar et al. 2019). Tokens outside the logits are passed over.
void penalize_repetition(std::span<float> logits, std::span<const std::int32_t> text, double penalty);

/// The tokens that may be drawn, in the order of ids, and their weights.
struct token_choice {
    std::vector<std::int32_t> ids;
    std::vector<double> weights;
};

/// The weights of logits, relative to the largest.
class token_weights {
  public:
    token_weights(std::span<const float> logits, double temperature)
        : logits_(logits), highest_(logits[largest(logits)]), temperature_(temperature) {}

    double operator()(std::int32_t id) const {
        return std::exp((static_cast<double>(logits_[static_cast<std::size_t>(id)]) - highest_) / temperature_);
    }
    bool stands_before(std::int32_t a, std::int32_t b) const {
        const float x = logits_[static_cast<std::size_t>(a)], y = logits_[static_cast<std::size_t>(b)];
        return x != y ? x > y : a < b;
    }
    /// The index of the first of the largest logits. Throws argument_error for no logits, a NaN, or a largest logit
    /// that is not finite.
    static std::size_t largest(std::span<const float> logits);

  private:
    std::span<const float> logits_;
    double highest_, temperature_;
};

/// The tokens that top-k and top-p select, in the order of their probability. They are taken from a heap one by one, so
/// that most tokens are never sorted.
std::vector<std::int32_t> likeliest_tokens(const token_weights& weight, std::vector<std::int32_t> heap, std::size_t most,
                                           double top_p);

/// The tokens that top-k and top-p select, and their weights. The temperature is not 0.
token_choice tokens_left(std::span<const float> logits, const generation_options& o);

}  // namespace detail

/// The token at `position` of sequence number `sequence`, chosen from the logits after the previous token, by the
/// definition at the top of this file. Throws argument_error for options out of range, and for logits with a NaN or
/// without a finite largest one.
std::int32_t sample_token(std::span<const float> logits, const generation_options& options, std::uint64_t sequence,
                          std::uint32_t position);

}  // namespace HALFTONE_ABI
}  // namespace halftone

#if defined(HALFTONE_OUT_OF_LINE)
#include <halftone/nn/token_sampler.body.hpp>
#endif
