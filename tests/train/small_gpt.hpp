// SPDX-License-Identifier: MIT
/// \file
/// A GPT that trains in milliseconds, and its text.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/train/trainer.hpp>

namespace small {

namespace ht = halftone;

inline constexpr ht::nn::gpt_config config{.vocabulary = 32, .context = 8, .layers = 2, .heads = 2, .width = 32};

/// Sixteen symbols in a walk that a model can learn.
inline std::string text() {
    std::string t;
    for (int i = 0; i < 4000; ++i) t += static_cast<char>((i * i + i / 7) % 16);
    return t;
}

inline const ht::language_options options{
    .context = config.context, .vocabulary = config.vocabulary, .held_out = 0.1, .seed = 5};

/// The masters of all parameters, as bytes.
inline std::vector<std::byte> masters(const ht::store& parameters) {
    std::vector<std::byte> all;
    for (const ht::store::group& g : parameters.groups())
        all.insert(all.end(), g.master.data(), g.master.data() + g.master.bytes());
    return all;
}

}  // namespace small
