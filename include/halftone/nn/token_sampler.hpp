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
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <halftone/error.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/tensor/key_value_cache.hpp>

#if defined(HALFTONE_COMPILED) && !defined(__clang__)
#pragma interface  // halftone::compiled contains the following functions that are not templates
#endif

namespace halftone {
inline namespace HALFTONE_ABI {

/// Options of generation, with the names of transformers' GenerationConfig.
struct generation_options {
    extent max_new_tokens = 20;  ///< for each prompt, 0 or more
    double temperature = 0;      ///< divides the logits; 0: the most probable token, without drawing
    extent top_k = 0;            ///< the number of most probable tokens that are drawn from; 0: all
    double top_p = 1;            ///< the probability of the most probable tokens that are drawn from, above 0 and at most 1
    std::uint64_t seed = 0;
    std::optional<std::int32_t> eos = std::nullopt;  ///< the token that ends a text; the result includes it
    extent first_sequence = 0;  ///< the index of the first prompt, if the prompts are a part of a list: draws depend on it
    cache_type cache = cache_type::as_computed;  ///< how keys and values are stored (tensor/key_value_cache.hpp)
};

namespace detail {

/// The tensor number (number/philox.hpp) from which the random numbers of generation are derived.
inline constexpr std::uint32_t generation_stream = 0x67656e65;

void check_generation(const generation_options& o);

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

#if !defined(HALFTONE_COMPILED) || defined(HALFTONE_COMPILED_FUNCTIONS) || defined(__clang__)

inline void check_generation(const generation_options& o) {
    if (o.max_new_tokens < 0)
        fail<argument_error>("generate: max_new_tokens is ", o.max_new_tokens, "; expected 0 or more");
    if (!(o.temperature >= 0 && o.temperature <= std::numeric_limits<double>::max()))
        fail<argument_error>("generate: the temperature is ", o.temperature, "; expected 0 or more");
    if (o.top_k < 0) fail<argument_error>("generate: top_k is ", o.top_k, "; expected 0 (all) or more");
    if (!(o.top_p > 0 && o.top_p <= 1))
        fail<argument_error>("generate: top_p is ", o.top_p, "; expected more than 0, and at most 1");
}

inline std::size_t token_weights::largest(std::span<const float> logits) {
    if (logits.empty()) fail<argument_error>("generate: an empty row of logits");
    std::size_t best = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        if (is_nan(logits[i])) fail<argument_error>("generate: the logit of token ", i, " is NaN");
        if (logits[i] > logits[best]) best = i;
    }
    if (!is_finite(logits[best]))
        fail<argument_error>("generate: the largest logit, of token ", best, ", is ", logits[best]);
    return best;
}

inline std::vector<std::int32_t> likeliest_tokens(const token_weights& weight, std::vector<std::int32_t> heap,
                                                  std::size_t most, double top_p) {
    const auto stands_behind = [&](std::int32_t a, std::int32_t b) { return weight.stands_before(b, a); };
    std::make_heap(heap.begin(), heap.end(), stands_behind);
    const auto take = [&] {
        std::pop_heap(heap.begin(), heap.end(), stands_behind);
        const std::int32_t id = heap.back();
        heap.pop_back();
        return id;
    };
    std::vector<std::int32_t> best;
    double total = 0, taken = 0;
    if (most < heap.size()) {
        while (best.size() < most) best.push_back(take());
        for (const std::int32_t id : best) total += weight(id);
    } else {
        for (const std::int32_t id : heap) total += weight(id);
    }
    std::size_t count = 0;
    for (; count < most && (count == 0 || top_p == 1 || taken < top_p * total); ++count) {
        if (count == best.size()) best.push_back(take());
        taken += weight(best[count]);
    }
    best.resize(count);
    return best;
}

inline token_choice tokens_left(std::span<const float> logits, const generation_options& o) {
    const token_weights weight(logits, o.temperature);
    const std::size_t all = logits.size(), most = o.top_k == 0 ? all : std::min(all, static_cast<std::size_t>(o.top_k));
    token_choice left;
    left.ids.resize(all);
    for (std::size_t i = 0; i < all; ++i) left.ids[i] = static_cast<std::int32_t>(i);
    if (most < all || o.top_p < 1) {
        left.ids = likeliest_tokens(weight, std::move(left.ids), most, o.top_p);
        std::sort(left.ids.begin(), left.ids.end());
    }
    left.weights.reserve(left.ids.size());
    for (const std::int32_t id : left.ids) left.weights.push_back(weight(id));
    return left;
}

#endif

}  // namespace detail

/// The token at `position` of sequence number `sequence`, chosen from the logits after the previous token, by the
/// definition at the top of this file. Throws argument_error for options out of range, and for logits with a NaN or
/// without a finite largest one.
std::int32_t sample_token(std::span<const float> logits, const generation_options& options, std::uint64_t sequence,
                          std::uint32_t position);

#if !defined(HALFTONE_COMPILED) || defined(HALFTONE_COMPILED_FUNCTIONS) || defined(__clang__)

/// Draws a token.
inline std::int32_t sample_token(std::span<const float> logits, const generation_options& options,
                                 std::uint64_t sequence, std::uint32_t position) {
    detail::check_generation(options);
    if (options.temperature == 0) return static_cast<std::int32_t>(detail::token_weights::largest(logits));
    const detail::token_choice left = detail::tokens_left(logits, options);
    const philox::block bits = random_block(options.seed, position, detail::generation_stream, sequence);
    const double u = static_cast<double>((static_cast<std::uint64_t>(bits[0]) << 21) ^ (bits[1] >> 11)) * 0x1p-53;
    double sum = 0, up_to = 0;
    for (const double w : left.weights) sum += w;
    for (std::size_t i = 0; i < left.ids.size(); ++i) {
        up_to += left.weights[i];
        if (up_to > u * sum) return left.ids[i];
    }
    return left.ids.back();  // if rounding leaves no sum above u times the total
}

#endif

}  // namespace HALFTONE_ABI
}  // namespace halftone
