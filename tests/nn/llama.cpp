// SPDX-License-Identifier: MIT
/// \file
/// A Llama compared with that of transformers on the CPU, and invalid configurations.
#include <string>
#include <vector>

#include "nn/layers.hpp"
#include "nn/llama_checks.hpp"

namespace nn_llama_tests {

namespace ht = halftone;
using namespace llama_test;
using strings = std::vector<std::string>;

TEST_CASE("llama: logits, loss and gradients are transformers', in float32") {
    ht::cpu device{{.threads = 2}};
    for (const golden_case& c : golden_cases()) is_as_transformers_has_it<ht::full_fp32>(device, c);
}

TEST_CASE("llama: in bfloat16 at most twice as far off as PyTorch's autocast") {
    ht::cpu device{{.threads = 2}};
    for (const golden_case& c : golden_cases()) errs_as_autocast<ht::amp_bf16>(device, c);
}

TEST_CASE("llama: norms of queries and keys are Qwen3's") {
    ht::cpu device{{.threads = 2}};
    const golden_case c = golden_case_of("qwen3");
    is_as_transformers_has_it<ht::full_fp32, ht::nn::qk_norm::rms>(device, c);
    errs_as_autocast<ht::amp_bf16, ht::nn::qk_norm::rms>(device, c);
}

TEST_CASE("llama: with a sliding window as Mistral's, and not with another") {
    ht::cpu device{{.threads = 2}};
    const golden_case c = golden_case_of("mistral");
    is_as_transformers_has_it<ht::full_fp32>(device, c, ht::sliding_window{5});
    errs_as_autocast<ht::amp_bf16>(device, c, ht::sliding_window{5});
    ht::nn::llama<ht::full_fp32> model{device, config_of("mistral")};
    const batch b(model);
    ht::inference eval{device};
    CHECK(off(support::doubles(model.logits(eval, b.tokens, {}, ht::sliding_window{4}).view()), c.logits) > 1e-3);
    const std::int32_t offsets[] = {0, 5, steps};
    const ht::const_view<std::int32_t, 2> row(b.token_ids.data(), {1, steps});
    CHECK_THROWS_WITH_AS(model.logits(eval, row, ht::packed{{offsets, {3}}}, ht::sliding_window{5}),
                         "rotary_attention: packed documents together with functions of scores; use the function "
                         "ht::document_mask(ids), which keeps documents apart",
                         ht::argument_error);
}

TEST_CASE("llama: paths, and what tied heads and biases add") {
    ht::cpu device{{.threads = 1}};
    const auto paths = [&](const ht::nn::llama_config& c) {
        ht::nn::llama<ht::full_fp32> model{device, c};
        strings all;
        for (const ht::store::entry& e : model.parameters().entries()) all.push_back(e.path);
        return all;
    };
    ht::nn::llama_config c{.hidden_size = 8, .intermediate_size = 4, .num_hidden_layers = 1, .num_attention_heads = 2};
    const strings block{"h.0.attn.norm.gain", "h.0.attn.qkv.weight", "h.0.attn.proj.weight", "h.0.mlp.norm.gain",
                        "h.0.mlp.gate_up.weight", "h.0.mlp.down.weight"};
    strings want{"embed.tokens"};
    want.insert(want.end(), block.begin(), block.end());
    want.insert(want.end(), {"norm.gain", "head.weight"});
    CHECK(paths(c) == want);
    c.tie_word_embeddings = c.attention_bias = true;
    want.pop_back();
    want.insert(want.begin() + 3, "h.0.attn.qkv.bias");
    CHECK(paths(c) == want);
}

TEST_CASE("llama: documents in one row have the logits that they have alone") {
    ht::cpu device{{.threads = 1}};
    ht::nn::llama<ht::full_fp32> model{device, config_of("llama")};
    const batch b(model);
    ht::inference eval{device};
    const std::int32_t offsets[] = {0, 5, steps};
    const ht::const_view<std::int32_t, 2> row(b.token_ids.data(), {1, steps}), first(b.token_ids.data(), {1, 5}),
        second(b.token_ids.data() + 5, {1, steps - 5});
    const auto packed = support::doubles(model.logits(eval, row, ht::packed{{offsets, {3}}}).view());
    auto alone = support::doubles(model.logits(eval, first).view());
    const auto others = support::doubles(model.logits(eval, second).view());
    alone.insert(alone.end(), others.begin(), others.end());
    CHECK(packed == alone);
}

TEST_CASE("llama: configurations that make none") {
    ht::cpu device{{.threads = 1}};
    const auto make = [&](const ht::nn::llama_config& c) { ht::nn::llama<ht::full_fp32> model{device, c}; };
    CHECK_THROWS_AS(make({.num_hidden_layers = 0}), ht::argument_error);
    CHECK_THROWS_WITH_AS(make({.num_key_value_heads = 3}),
                         "rotary_attention: 4 heads of queries cannot share 3 heads of keys and values evenly",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(make({.hidden_size = 6}), "rotary_attention: 4 heads do not divide a width of 6", ht::argument_error);
    CHECK_THROWS_WITH_AS(make({.head_dim = 5}), "rotary_attention: head_size is 5; expected an even number",
                         ht::argument_error);
    ht::nn::llama<ht::full_fp32> model{device, {.max_position_embeddings = 4}};
    ht::inference eval{device};
    const std::int32_t ids[5] = {};
    CHECK_THROWS_WITH_AS(model.logits(eval, ht::const_view<std::int32_t, 2>(ids, {1, 5})),
                         "rotary: 5 tokens in a row; the table has 4 positions", ht::shape_error);
}

TEST_CASE("attention: grouped heads in the layer, and heads that cannot be shared") {
    nn_test::alone<ht::nn::attention<ht::at<ht::full_fp32, "at">>> grouped(
        8, 4, ht::initial{.deviation = 0.5f}, ht::initial{.deviation = 0.5f}, ht::attention_options{}, 2);
    CHECK(grouped.layer.qkv.weight.shape() == ht::shape<2>{16, 8});
    CHECK(grouped.layer.head_size() == 2);
    const nn_test::input<float, 3> x({2, 3, 8});
    ht::inference eval{grouped.device};
    const auto y = grouped.layer(eval, eval.constant(x.view));
    CHECK(y.shape() == ht::shape<3>{2, 3, 8});
    using layer = nn_test::alone<ht::nn::attention<ht::at<ht::full_fp32, "at">>>;
    CHECK_THROWS_WITH_AS(layer(8, 4, ht::initial{}, ht::initial{}, ht::attention_options{}, 3),
                         "attention: 4 heads of queries cannot share 3 heads of keys and values evenly", ht::argument_error);
}

}  // namespace nn_llama_tests
