// SPDX-License-Identifier: MIT
// A function that hears of tokens returns an int, of which 0, such as the count of tokens before the first, would end the text.
//
// expect: halftone: generate: on_token(std::size_t text, std::int32_t token) returns nothing, or whether the text goes on: a bool
#include <halftone/amp.hpp>
#include <halftone/nn/generation.hpp>
#include <halftone/nn/gpt.hpp>

namespace ht = halftone;

void make(ht::inference<ht::cpu>& eval, const ht::nn::gpt<ht::full_fp32>& model,
          std::span<const std::vector<std::int32_t>> prompts) {
    int count = 0;
#if defined(HALFTONE_TEST_RIGHT)
    ht::generate(eval, model, prompts, {}, [&](std::size_t, std::int32_t) { return ++count < 9; });
    ht::generate(eval, model, prompts, {}, [&](std::size_t, std::int32_t) { ++count; });
#else
    ht::generate(eval, model, prompts, {}, [&](std::size_t, std::int32_t) { return count++; });
#endif
}
