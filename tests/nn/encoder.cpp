// SPDX-License-Identifier: MIT
/// \file
/// An encoder and a classifier compared with transformers' on the CPU; invalid configurations.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>

#include "nn/encoder_checks.hpp"

namespace {

using namespace encoder_test;
using strings = std::vector<std::string>;

TEST_CASE("encoder: hidden states, logits, loss and gradients are BERT's, in float32") {
    ht::cpu device{{.threads = 2}};
    is_as_bert<ht::full_fp32>(device);
}

TEST_CASE("encoder: in bfloat16 the error is at most twice that of PyTorch's autocast") {
    ht::cpu device{{.threads = 2}};
    is_as_bert<autocast_bf16>(device);
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

TEST_CASE("encoder: invalid configurations and batches") {
    ht::cpu device{{.threads = 1}};
    const auto make = [&](const ht::nn::classifier_config& c) { ht::nn::classifier<ht::full_fp32> model{device, c}; };
    CHECK_THROWS_WITH_AS(make({.encoder = {.num_hidden_layers = 0}}),
                         "classifier: 0 layers and 2 labels; expected at least 1 of each", ht::argument_error);
    CHECK_THROWS_WITH_AS(make({.encoder = {.num_attention_heads = 3}}), "attention: 3 heads do not divide a width of 256",
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

}  // namespace
