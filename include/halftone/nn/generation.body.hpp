// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in generation.hpp that are no templates.
#pragma once

#include <halftone/nn/generation.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE generation::generation(std::span<const std::vector<std::int32_t>> prompts,
                                            const generation_options& o, extent most)
    : options_(o), texts_(prompts.begin(), prompts.end()), computed_(prompts.size(), 0) {
    check_generation(o);
    extent longest = 0;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        const auto length = static_cast<extent>(prompts[i].size());
        if (length == 0)
            fail<argument_error>("generate: prompt ", i,
                                 " has no tokens; expected at least one, such as a begin-of-text token");
        if (length > most || o.max_new_tokens > most - length)
            fail<argument_error>("generate: prompt ", i, " has ", length, " tokens, and ", o.max_new_tokens,
                                 " more are requested; the model's context has ", most);
        longest = std::max(longest, length);
        given_.push_back(prompts[i].size());
        if (o.max_new_tokens > 0) going_on_.push_back(i);
    }
    // The last token is not an input of the model.
    capacity_ = std::max<extent>(1, longest + o.max_new_tokens - 1);
}

HALFTONE_OUT_OF_LINE key_value_cache& generation::take(prompt_cache& cache) {
    if (cache.sequences() != sequences())
        fail<argument_error>("generate: ", sequences(), " prompts, and a cache of ", cache.sequences());
    if (cache.capacity() < capacity_)
        fail<argument_error>("generate: prompts and new tokens need ", capacity_, " places; the cache has ",
                             cache.capacity());
    if (cache.is_in_use_)
        fail<state_error>(
            "generate: the cache is in use by a call that has not ended; give another one to what a token calls");
    cache_ = &cache;
    cache.is_in_use_ = true;
    const texts kept = std::exchange(cache.tokens_, texts(cache.tokens_.size()));
    for (std::size_t i = 0; i < texts_.size(); ++i) {
        // The prompt's last token is computed again: its logits are not kept.
        const auto last = texts_[i].end() - 1;
        const auto end = std::mismatch(texts_[i].begin(), last, kept[i].begin(), kept[i].end()).first;
        computed_[i] = static_cast<std::size_t>(end - texts_[i].begin());
        cache.cache_.truncate(static_cast<extent>(i), static_cast<extent>(computed_[i]));
    }
    return cache.cache_;
}

HALFTONE_OUT_OF_LINE void generation::give_back() {
    for (std::size_t i = 0; i < texts_.size(); ++i)
        cache_->tokens_[i].assign(texts_[i].begin(), texts_[i].begin() + static_cast<std::ptrdiff_t>(computed_[i]));
}

HALFTONE_OUT_OF_LINE void generation::begin_step() {
    tokens_.clear(), offsets_.assign(1, 0);
    auto next = going_on_.begin();
    for (std::size_t i = 0; i < texts_.size(); ++i) {
        if (next != going_on_.end() && *next == i) {
            tokens_.insert(tokens_.end(), texts_[i].begin() + static_cast<std::ptrdiff_t>(computed_[i]),
                           texts_[i].end());
            computed_[i] = texts_[i].size();
            ++next;
        }
        offsets_.push_back(static_cast<std::int32_t>(tokens_.size()));
    }
}

HALFTONE_OUT_OF_LINE bool generation::take_row(std::size_t i, std::span<float> logits) {
    penalize_repetition(logits, texts_[i], options_.repetition_penalty);
    const std::size_t position = texts_[i].size();
    const std::uint64_t number = static_cast<std::uint64_t>(options_.first_sequence) + i;
    const std::int32_t token = sample_token(logits, options_, number, static_cast<std::uint32_t>(position));
    texts_[i].push_back(token);
    return std::find(options_.eos.begin(), options_.eos.end(), token) == options_.eos.end() &&
           static_cast<extent>(texts_[i].size() - given_[i]) < options_.max_new_tokens;
}

HALFTONE_OUT_OF_LINE generation::texts generation::result() const {
    texts made;
    for (std::size_t i = 0; i < texts_.size(); ++i)
        made.emplace_back(texts_[i].begin() + static_cast<std::ptrdiff_t>(given_[i]), texts_[i].end());
    return made;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
