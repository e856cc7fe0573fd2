// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in generation.hpp that are no templates.
#pragma once

#include <halftone/nn/generation.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE generation::generation(std::span<const std::vector<std::int32_t>> prompts, const generation_options& o,
                              extent most)
    : options_(o), prompts_(prompts), new_tokens_(prompts.size()) {
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
        if (o.max_new_tokens > 0) going_on_.push_back(i);
    }
    // The last token is not an input of the model.
    capacity_ = std::max<extent>(1, longest + o.max_new_tokens - 1);
}

HALFTONE_OUT_OF_LINE void generation::begin_step() {
    tokens_.clear(), offsets_.assign(1, 0);
    auto next = going_on_.begin();
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
        if (next != going_on_.end() && *next == i) {
            const auto& made = new_tokens_[i];
            if (made.empty()) {
                tokens_.insert(tokens_.end(), prompts_[i].begin(), prompts_[i].end());
            } else {
                tokens_.push_back(made.back());
            }
            ++next;
        }
        offsets_.push_back(static_cast<std::int32_t>(tokens_.size()));
    }
}

HALFTONE_OUT_OF_LINE bool generation::take_row(std::size_t i, std::span<const float> logits) {
    const std::size_t position = prompts_[i].size() + new_tokens_[i].size();
    const std::uint64_t number = static_cast<std::uint64_t>(options_.first_sequence) + i;
    const std::int32_t token = sample_token(logits, options_, number, static_cast<std::uint32_t>(position));
    new_tokens_[i].push_back(token);
    return token != options_.eos && static_cast<extent>(new_tokens_[i].size()) < options_.max_new_tokens;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
