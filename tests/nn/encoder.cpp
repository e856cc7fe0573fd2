// SPDX-License-Identifier: MIT
/// \file
/// An encoder and a classifier compared with transformers' on the CPU; invalid configurations.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>

#include "nn/encoder_checks.hpp"

namespace nn_encoder_tests {

using namespace encoder_test;
using strings = std::vector<std::string>;

TEST_CASE("encoder: hidden states, logits, loss and gradients are BERT's, in float32") {
    ht::cpu device{{.threads = 2}};
    is_as_bert<ht::full_fp32>(device);
}

TEST_CASE("encoder: in bfloat16 the error is at most twice that of PyTorch's autocast") {
    ht::cpu device{{.threads = 2}};
    is_as_bert<ht::amp_bf16>(device);
}

TEST_CASE("encoder: paths") {
    ht::cpu device{{.threads = 1}};
    const ht::nn::classifier<ht::full_fp32> model{
        device, {.encoder = {.hidden_size = 8, .num_hidden_layers = 1, .num_attention_heads = 2}}};
    strings paths;
    for (const ht::store::entry& e : model.parameters().entries()) paths.push_back(e.path);
    CHECK(paths == strings{"encoder.embed.tokens", "encoder.embed.positions", "encoder.embed.types.tokens",
                           "encoder.embed.norm.gain", "encoder.embed.norm.bias", "encoder.h.0.attn.qkv.weight",
                           "encoder.h.0.attn.qkv.bias", "encoder.h.0.attn.proj.weight", "encoder.h.0.attn.proj.bias",
                           "encoder.h.0.attn.norm.gain", "encoder.h.0.attn.norm.bias", "encoder.h.0.mlp.up.weight",
                           "encoder.h.0.mlp.up.bias", "encoder.h.0.mlp.down.weight", "encoder.h.0.mlp.down.bias",
                           "encoder.h.0.mlp.norm.gain", "encoder.h.0.mlp.norm.bias", "encoder.pooler.weight",
                           "encoder.pooler.bias", "head.weight", "head.bias"});
}

TEST_CASE("encoder: padding does not change the tokens before it") {
    ht::cpu device{{.threads = 1}};
    ht::nn::classifier<ht::full_fp32> model{device, config_of("plain")};
    inputs in(model);
    ht::inference eval{device};
    const auto run = [&] {
        return support::doubles(model.logits(eval, in.tokens, {}, ht::key_lengths(in.lengths)).view());
    };
    const doubles before = run();
    in.token_ids[steps + 1] = (in.token_ids[steps + 1] + 1) % 32;  // row 1 has one token
    CHECK(run() == before);
    in.token_ids[steps] = (in.token_ids[steps] + 1) % 32;
    CHECK(run() != before);
}

/// Whether every element is 0 or `factor` times that without dropout, and some are each.
bool is_dropped(const std::vector<double>& got, const std::vector<double>& whole, double factor) {
    std::size_t zeros = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        if (got[i] == 0) {
            ++zeros;
        } else if (std::fabs(got[i] - factor * whole[i]) > 1e-6 * std::fabs(factor * whole[i])) {
            return false;
        }
    }
    return got.size() == whole.size() && zeros > got.size() / 8 && zeros < got.size() / 8 * 7;
}
/// An encoder alone.
struct bare_encoder : ht::nn::model {
    using policy = ht::full_fp32;
    ht::nn::encoder<ht::at<policy, "bert">> bert;

    bare_encoder(ht::cpu& device, const ht::nn::encoder_config& c) : model{device}, bert{parameters(), c} { commit(*this); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.bert); }
};

TEST_CASE("encoder: dropout of embeddings, of the results of each layer, and of the classifier's input; on tapes only") {
    ht::cpu device{{.threads = 1}};
    ht::inference eval{device};
    ht::tape tape{device};
    auto config = config_of("plain");
    config.encoder.hidden_dropout_prob = 0.5f;
    for (const int layers : {0, 2}) {
        config.encoder.num_hidden_layers = layers;
        const bare_encoder model(device, config.encoder);
        const std::vector<std::int32_t> ids{3, 1, 4, 1, 5, 9, 2, 6};
        const ht::const_view<std::int32_t, 2> tokens(ids.data(), {2, 4});
        const auto whole = support::doubles(model.bert(eval, tokens).view());
        CHECK(support::doubles(model.bert(eval, tokens).view()) == whole);
        // Without blocks the result is that of the embeddings.
        if (layers == 0) CHECK(is_dropped(support::doubles(model.bert(tape, tokens).view()), whole, 2));
        model.bert.h.each([](const auto& block) {
            CHECK(block.attn.residual_dropout == 0.5f);
            CHECK(block.mlp_.residual_dropout == 0.5f);
        });
    }

    config.encoder.hidden_dropout_prob = 0;
    config.classifier_dropout = 0.75f;
    config.num_labels = config.encoder.hidden_size;
    ht::nn::classifier<ht::full_fp32> model{device, config};
    inputs in(model);
    ht::store& s = model.parameters();
    for (std::size_t i = 0; i < s.entries().size(); ++i) {
        if (!s.entries()[i].path.starts_with("head.")) continue;
        std::vector<float> identity(s.entries()[i].count);
        const auto step = static_cast<std::size_t>(config.num_labels + 1);
        for (std::size_t j = 0; s.entries()[i].path == "head.weight" && j < identity.size(); j += step) identity[j] = 1;
        support::write_masters(s, i, identity);
    }
    s.refresh();
    const auto whole = support::doubles(model.logits(eval, in.tokens).view());
    CHECK(is_dropped(support::doubles(model.logits(tape, in.tokens).view()), whole, 4));
}

TEST_CASE("encoder: initial values") {
    ht::cpu device{{.threads = 1}};
    const ht::nn::classifier<ht::full_fp32> model{device, config_of("plain")}, other{device, config_of("plain"), 1};
    for (const ht::store::entry& e : model.parameters().entries()) {
        CAPTURE(e.path);
        const bool is_gain = e.path.ends_with("gain"), is_bias = e.path.ends_with("bias");
        CHECK(e.values.mean == (is_gain ? 1.0f : 0.0f));
        CHECK(e.values.deviation == (is_gain || is_bias ? 0.0f : 0.02f));
        CHECK(e.values.bound == 0.0f);
    }
    inputs in(model.config());
    ht::inference eval{device};
    CHECK(support::doubles(model.logits(eval, in.tokens).view()) != support::doubles(other.logits(eval, in.tokens).view()));
}

TEST_CASE("encoder: the epsilon of the configuration is that of every norm") {
    ht::cpu device{{.threads = 1}};
    auto config = config_of("plain");
    config.encoder.layer_norm_eps = 0.25f;
    const bare_encoder model(device, config.encoder);
    CHECK(model.bert.embed_norm.epsilon == 0.25f);
    model.bert.h.each([](const auto& block) {
        CHECK(block.attn_norm.epsilon == 0.25f);
        CHECK(block.mlp_norm.epsilon == 0.25f);
    });
}

TEST_CASE("encoder: the row of the padding token has no gradient, also where the token is visible") {
    ht::cpu device{{.threads = 1}};
    for (const bool has_padding : {false, true}) {
        ht::nn::classifier<ht::full_fp32> model{device, config_of(has_padding ? "padded" : "plain")};
        inputs in(model);
        in.token_ids[0] = 0, in.token_ids[1] = 1;
        ht::tape tape{device};
        support::gradient_sink sink(model.parameters());
        tape.backward(model.loss(tape, plain_batch{in.tokens, in.labels}), sink);
        const std::vector<float> rows = sink.entry(0);  // (vocab_size, 16)
        const auto is_zero = [&](int row) {
            return std::all_of(rows.begin() + 16 * row, rows.begin() + 16 * (row + 1), [](float g) { return g == 0; });
        };
        CHECK(is_zero(0) == has_padding);
        CHECK(!is_zero(1));
    }
}

TEST_CASE("encoder: invalid configurations and batches") {
    ht::cpu device{{.threads = 1}};
    const auto make = [&](const ht::nn::classifier_config& c) { ht::nn::classifier<ht::full_fp32> model{device, c}; };
    CHECK_THROWS_WITH_AS(make({.encoder = {.num_hidden_layers = 0}}),
                         "classifier: 0 layers and 2 labels; expected at least 1 of each", ht::argument_error);
    CHECK_THROWS_WITH_AS(make({.encoder = {.num_attention_heads = 3}}), "attention: 3 heads do not divide a width of 256",
                         ht::argument_error);
    CHECK_THROWS_AS(make({.encoder = {.hidden_size = 512,
                                      .num_attention_heads = 1,
                                      .strategy = ht::attention_strategy::flash}}),
                    ht::argument_error);
    CHECK_THROWS_AS(make({.encoder = {.hidden_dropout_prob = 2}}), ht::argument_error);
    CHECK_THROWS_AS(make({.classifier_dropout = -1}), ht::argument_error);
    CHECK_THROWS_AS(make({.encoder = {.pad_token_id = 256}}), ht::argument_error);
    ht::nn::classifier<ht::full_fp32> model{device, config_of("plain")};
    inputs in(model);
    ht::tape tape{device};
    const ht::const_view<std::int32_t, 2> few(in.type_ids.data(), {rows, 3});
    CHECK_THROWS_WITH_AS(model.loss(tape, padded_batch{in.tokens, few, in.labels, in.lengths}),
                         "encoder: tokens are (4, 9), token types (4, 3)", ht::shape_error);
    const ht::const_view<std::int32_t, 1> one(in.label_ids.data(), {1});
    CHECK_THROWS_WITH_AS(model.loss(tape, plain_batch{in.tokens, one}), "classifier: tokens are (4, 9), labels (1)",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS(model.loss(tape, padded_batch{in.tokens, in.token_types, in.labels, one}),
                         "classifier: tokens are (4, 9), lengths (1)", ht::shape_error);
    const ht::const_view<std::int32_t, 2> wide(in.type_ids.data(), {2, 18});
    CHECK_THROWS_WITH_AS(model.loss(tape, plain_batch{wide, ht::const_view<std::int32_t, 1>(in.label_ids.data(), {2})}),
                         "embedding: 18 tokens in a row; the context holds 12", ht::shape_error);
}

}  // namespace nn_encoder_tests
