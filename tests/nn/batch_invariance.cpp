// SPDX-License-Identifier: MIT
/// \file
/// A row of a GPT has the same bits whatever rows are computed beside it, on the CPU. Others: tests/nn/vit_bf16.cpp; with a key-value
/// cache and in steps of any length: tests/nn/generation.cpp.
#include "nn/batch_invariance.hpp"

#include <halftone/amp.hpp>

namespace nn_batch_invariance_tests {

namespace ht = halftone;

template <class P>
void check_gpt_batches(int splits) {
    constexpr int vocabulary = 37;
    constexpr ht::extent length = 33;
    ht::cpu device{{.threads = 2}};
    ht::nn::gpt<P> model{device, {.vocabulary = vocabulary, .context = length, .layers = 2, .heads = 2, .width = 16}};
    ht::inference eval{device};
    batch_invariance::check_ids(12, length, vocabulary, splits, [&](const ht::const_view<std::int32_t, 2>& tokens) {
        return ht::to_host(device, model.logits(eval, tokens));
    });
}
void check_gpts(int splits) {
    check_gpt_batches<ht::full_fp32>(splits);
    check_gpt_batches<ht::amp_bf16>(splits);
    check_gpt_batches<ht::amp_fp16>(splits);
}

TEST_CASE("batches: a row of a GPT has the same bits whatever rows are beside it") { check_gpts(5); }
TEST_CASE("batches: the same in a thousand random divisions into batches" * doctest::skip()) { check_gpts(1000); }

}  // namespace nn_batch_invariance_tests
