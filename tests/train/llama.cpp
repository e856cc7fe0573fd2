// SPDX-License-Identifier: MIT
/// \file
/// A Llama in place of a GPT: the trainer trains it, and the lint and a shadow run report nothing.
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/nn/llama.hpp>
#include <halftone/observe/lint/lint.hpp>
#include <halftone/observe/shadow/shadow.hpp>

#include "train/small_gpt.hpp"

namespace train_llama_tests {

namespace ht = halftone;

constexpr ht::nn::llama_config config{.vocab_size = small::config.vocabulary,
                                      .hidden_size = 32,
                                      .intermediate_size = 48,
                                      .num_hidden_layers = 2,
                                      .num_attention_heads = 4,
                                      .num_key_value_heads = 2,
                                      .max_position_embeddings = small::config.context,
                                      .tie_word_embeddings = true,
                                      .attention_bias = true};

TEST_CASE_TEMPLATE("the trainer trains a Llama", P, ht::full_fp32, ht::amp_bf16, ht::amp_fp16) {
    ht::cpu device{{.threads = 1}};
    ht::nn::llama<P> model{device, config, 1};
    const std::string corpus = small::text();
    ht::language_data data{ht::token_view{corpus}, small::options};
    ht::trainer trainer{device, model, {.per_device_train_batch_size = 4, .max_steps = 60, .learning_rate = 1e-2}};
    trainer.train(data);
    const auto evaluated = trainer.evaluate(data);
    CAPTURE(evaluated.loss);
    CHECK(evaluated.loss < 0.8 * std::log(32.0));  // log(32): the loss of a uniform guess
}

TEST_CASE("a Llama's step in bf16 differs from fp32 only by rounding, and its sums are short enough") {
    ht::cpu device{{.threads = 1}};
    using model_type = ht::nn::llama<ht::amp_bf16>;
    model_type model{device, config, 1};
    ht::shadow_twin<model_type> twin{device, config};
    const std::vector<std::int32_t> ids{5, 8, 7, 7, 25, 0, 31, 9, 12};
    struct batch {
        ht::const_view<std::int32_t, 2> tokens, targets;
    } row{{ids.data(), {1, 8}}, {ids.data() + 1, {1, 8}}};
    const auto report = ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) { return m.loss(tape, row); });
    std::ostringstream table;
    report.print(table);
    CAPTURE(table.str());
    CHECK(report.first() == nullptr);
    CHECK(ht::lint(model, {.rows = 8192, .micro_batches = 512}).empty());
}

}  // namespace train_llama_tests
