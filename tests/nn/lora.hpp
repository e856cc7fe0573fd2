// SPDX-License-Identifier: MIT
/// \file
/// Small models with adapters whose B is not zero, and the matrices of their adapters as doubles.
///
///     const lora_test::adapted<ht::nn::llama<P>> m{device, lora_test::llama_config(), {.rank = 3}};
///     m.model, lora_test::matrix(m.model.parameters(), "h.0.attn.qkv.weight").at(row, column)
#pragma once

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/io/adapters.hpp>
#include <halftone/nn/gpt.hpp>
#include <halftone/nn/llama.hpp>

#include "support/random.hpp"

namespace lora_test {

namespace ht = halftone;

inline ht::nn::llama_config llama_config() {
    return {.vocab_size = 32,
            .hidden_size = 16,
            .intermediate_size = 24,
            .num_hidden_layers = 2,
            .num_attention_heads = 4,
            .num_key_value_heads = 2,
            .max_position_embeddings = 16,
            .attention_bias = true};
}
inline ht::nn::gpt_config gpt_config() {
    return {.vocabulary = 32, .context = 16, .layers = 2, .heads = 2, .width = 16};
}

/// A row-major matrix of a store, its values or its gradient.
struct matrix {
    ht::extent rows = 0, columns = 0;
    std::vector<double> values{};
    double at(ht::extent row, ht::extent column) const {
        return values[static_cast<std::size_t>(row * columns + column)];
    }
};

inline std::size_t entry_at(const ht::store& s, const std::string& path) {
    for (std::size_t i = 0; i < s.entries().size(); ++i) {
        if (s.entries()[i].path == path) return i;
    }
    FAIL("no parameter " << path);
    return 0;
}
/// Entry i as doubles, by its masters or, without them, by its copies.
inline matrix values_of(const ht::store& s, std::size_t i) {
    const ht::store_entry& e = s.entries()[i];
    const ht::value_traits& own = ht::detail::saved_type(s.groups()[e.group], e);
    std::vector<std::byte> bytes(e.count * own.bytes);
    ht::detail::read_values(s, e, 0, e.count, bytes.data());
    matrix m{e.rows, e.width, std::vector<double>(e.count)};
    own.to_doubles(bytes.data(), e.count, m.values.data());
    return m;
}

/// Gives the adapters' B random values.
inline void fill_b(ht::store& s, double deviation = 0.1) {
    for (const ht::store_adapter& a : s.adapters().all()) {
        const ht::store_entry& e = s.entries()[a.b];
        const ht::value_traits& own = ht::detail::saved_type(s.groups()[e.group], e);
        std::vector<double> values;
        for (const float x : support::random(a.b + 1).normals<float>(static_cast<ht::extent>(e.count)))
            values.push_back(deviation * static_cast<double>(x));
        std::vector<std::byte> bytes(e.count * own.bytes);
        own.from_doubles(values.data(), e.count, bytes.data());
        s.write(a.b, 0, bytes.data(), e.count);
    }
    s.refresh();
}

/// Tokens of small models, and those that follow.
struct batch {
    std::vector<std::int32_t> token_ids, target_ids;
    ht::const_view<std::int32_t, 2> tokens, targets;
    explicit batch(unsigned seed = 1) {
        for (int i = 0; i < 2 * 11; ++i) {
            seed = seed * 1664525u + 1013904223u;
            token_ids.push_back(static_cast<std::int32_t>(seed >> 27));
            target_ids.push_back(static_cast<std::int32_t>(seed >> 22 & 31));
        }
        tokens = {token_ids.data(), {2, 11}}, targets = {target_ids.data(), {2, 11}};
    }
    batch(const batch&) = delete;
};

}  // namespace lora_test
