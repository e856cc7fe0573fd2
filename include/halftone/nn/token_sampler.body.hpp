// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in token_sampler.hpp that are no templates.
#pragma once

#include <halftone/nn/token_sampler.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE void check_generation(const generation_options& o) {
    if (o.max_new_tokens < 0)
        fail<argument_error>("generate: max_new_tokens is ", o.max_new_tokens, "; expected 0 or more");
    if (!(o.temperature >= 0 && o.temperature <= std::numeric_limits<double>::max()))
        fail<argument_error>("generate: the temperature is ", o.temperature, "; expected 0 or more");
    if (o.top_k < 0) fail<argument_error>("generate: top_k is ", o.top_k, "; expected 0 (all) or more");
    if (!(o.top_p > 0 && o.top_p <= 1))
        fail<argument_error>("generate: top_p is ", o.top_p, "; expected more than 0, and at most 1");
    if (!(o.repetition_penalty <= std::numeric_limits<float>::max() && static_cast<float>(o.repetition_penalty) > 0))
        fail<argument_error>("generate: repetition_penalty is ", o.repetition_penalty,
                             "; expected more than 0, as a float");
}

HALFTONE_OUT_OF_LINE void penalize_repetition(std::span<float> logits, std::span<const std::int32_t> text,
                                              double penalty) {
    if (penalty == 1) return;
    std::vector<bool> is_done(logits.size());
    const auto factor = static_cast<float>(penalty);
    for (const std::int32_t id : text) {
        const auto i = static_cast<std::size_t>(id);
        if (id < 0 || i >= logits.size() || is_done[i]) continue;
        is_done[i] = true;
        logits[i] = logits[i] > 0 ? logits[i] / factor : logits[i] * factor;
    }
}

HALFTONE_OUT_OF_LINE std::size_t token_weights::largest(std::span<const float> logits) {
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

HALFTONE_OUT_OF_LINE std::vector<std::int32_t> likeliest_tokens(const token_weights& weight, std::vector<std::int32_t> heap,
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

HALFTONE_OUT_OF_LINE token_choice tokens_left(std::span<const float> logits, const generation_options& o) {
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

}  // namespace detail

/// Draws a token.
HALFTONE_OUT_OF_LINE std::int32_t sample_token(std::span<const float> logits, const generation_options& options,
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

}  // namespace HALFTONE_ABI
}  // namespace halftone
