// SPDX-License-Identifier: MIT
/// \file
/// Generation with a key-value cache on the CPU: the bits of whole sequences, ends of texts, user-defined models, invalid arguments.
#include <string>
#include <vector>

#include <halftone/kernel.hpp>

#include "nn/generation_checks.hpp"

namespace nn_generation_tests {

namespace ht = halftone;
using namespace generation_test;

template <class P>
void gpt_is_as_recomputed(extent new_tokens) {
    ht::cpu device{{.threads = 2}};
    const lively<ht::nn::gpt<P>> model(device, gpt_of(new_tokens + 9));
    check_generation(device, model, new_tokens);
}
template <class P>
void llama_is_as_recomputed(extent new_tokens) {
    ht::cpu device{{.threads = 2}};
    const lively<ht::nn::llama<P>> model(device, llama_of(new_tokens + 9));
    check_generation(device, model, new_tokens);
}
/// With keys and values in eight bits, recomputation is a step of a new cache.
template <class Model, class Config>
void is_as_recomputed_in_eight_bits(const Config& config, const std::vector<extent>& lengths, extent new_tokens) {
    ht::cpu device{{.threads = 2}};
    const lively<Model> model(device, config);
    CHECK(different_rows(device, model, lengths, 2, ht::cache_type::int8) == 0);
    if (new_tokens > 0) check_generation(device, model, new_tokens, ht::cache_type::int8);
}

// More than 256 tokens: attention goes over several blocks of keys.
template <class Model, class Config>
void steps_are_as_one(const Config& config) {
    ht::cpu device{{.threads = 2}};
    const lively<Model> model(device, config);
    CHECK(different_rows(device, model, {300, 1, 70, 17, 265}, 2) == 0);
}

TEST_CASE("key_value_cache: a GPT's sequences in random steps have the bits of whole sequences") {
    steps_are_as_one<ht::nn::gpt<ht::amp_bf16>>(gpt_of(300));
    steps_are_as_one<ht::nn::gpt<ht::with_stream<ht::amp_bf16, ht::bfloat16>>>(gpt_of(300));
    steps_are_as_one<ht::nn::gpt<ht::amp_fp16>>(gpt_of(300));
    steps_are_as_one<ht::nn::gpt<ht::full_fp32>>(gpt_of(300));
}

TEST_CASE("key_value_cache: a Llama's sequences in random steps have the bits of whole sequences") {
    steps_are_as_one<ht::nn::llama<ht::amp_bf16>>(llama_of(300));
    steps_are_as_one<ht::nn::llama<ht::amp_fp16>>(llama_of(300));
    steps_are_as_one<ht::nn::llama<ht::full_fp32>>(llama_of(300));
}

TEST_CASE("key_value_cache in eight bits: the bits of one step, and the tokens of recomputation") {
    is_as_recomputed_in_eight_bits<ht::nn::gpt<ht::amp_bf16>>(gpt_of(300), {300, 1, 70, 17, 265}, 40);
    is_as_recomputed_in_eight_bits<ht::nn::gpt<ht::full_fp32>>(gpt_of(80), {80, 1, 33}, 0);
    is_as_recomputed_in_eight_bits<ht::nn::llama<ht::amp_fp16>>(llama_of(80), {80, 1, 33}, 40);
}

TEST_CASE("generate: the tokens of recomputation, in a batch and alone") {
    gpt_is_as_recomputed<ht::amp_bf16>(60);
    gpt_is_as_recomputed<ht::amp_fp16>(60);
    gpt_is_as_recomputed<ht::full_fp32>(60);
    llama_is_as_recomputed<ht::amp_bf16>(60);
    llama_is_as_recomputed<ht::amp_fp16>(60);
}

TEST_CASE("generate: 512 tokens are those of recomputation" * doctest::skip()) {
    gpt_is_as_recomputed<ht::amp_bf16>(512);
    gpt_is_as_recomputed<ht::amp_fp16>(512);
    gpt_is_as_recomputed<ht::full_fp32>(512);
    llama_is_as_recomputed<ht::amp_bf16>(512);
    llama_is_as_recomputed<ht::amp_fp16>(512);
    llama_is_as_recomputed<ht::full_fp32>(512);
}

TEST_CASE("key_value_cache: a thousand random divisions into steps" * doctest::skip()) {
    ht::cpu device{{.threads = 2}};
    const lively<ht::nn::gpt<ht::amp_bf16>> model(device, gpt_of(60));
    CHECK(different_rows(device, model, {60, 1, 33, 17, 40}, 1000) == 0);
}

/// A model that has logits but no next_logits.
struct plain_model {
    const ht::nn::gpt<ht::full_fp32>& inner;

    auto logits(auto&& ctx, const ht::const_view<std::int32_t, 2>& tokens, const ht::packed& rows) const {
        return inner.logits(ctx, tokens, rows);
    }
};

TEST_CASE("generate: a user-defined model; the token that ends a text; empty input") {
    ht::cpu device{{.threads = 1}};
    const lively<ht::nn::gpt<ht::full_fp32>> model(device, gpt_of(32));
    ht::inference eval{device};
    const std::vector<ids> prompts{{1, 2, 3}, {4}};
    const auto texts = model.generate(eval, prompts, {.max_new_tokens = 12});
    REQUIRE(texts.size() == 2);
    CHECK(texts[0].size() == 12);
    CHECK(ht::generate(eval, plain_model{model}, prompts, {.max_new_tokens = 12}) == texts);

    // Each text ends where one of two tokens comes for the first time: the first text's fifth and the second one's third.
    const ids ends{texts[0][4], texts[1][2]};
    auto ended = texts;
    for (ids& text : ended) {
        const auto found = std::find_first_of(text.begin(), text.end(), ends.begin(), ends.end());
        if (found != text.end()) text.erase(found + 1, text.end());
    }
    REQUIRE(ended[0].size() < 12);
    REQUIRE(ended[1].size() < 12);
    CHECK(model.generate(eval, prompts, {.max_new_tokens = 12, .eos = ends}) == ended);

    CHECK(model.generate(eval, prompts, {.max_new_tokens = 0}) == std::vector<ids>(2));
    CHECK(model.generate(eval, std::vector<ids>{}, {}).empty());
    // As many tokens as the context holds.
    CHECK(model.generate(eval, prompts, {.max_new_tokens = 29})[0].size() == 29);
}

TEST_CASE("generate: tokens are told as they are chosen, and a text ends where the program says so") {
    ht::cpu device{{.threads = 1}};
    const lively<ht::nn::gpt<ht::full_fp32>> model(device, gpt_of(32));
    ht::inference eval{device};
    const std::vector<ids> prompts{{1, 2, 3}, {4}, {5, 6}};
    auto texts = model.generate(eval, prompts, {.max_new_tokens = 12});
    std::vector<ids> told(3);
    std::vector<std::size_t> order;
    model.generate(eval, prompts, {.max_new_tokens = 12}, [&](std::size_t i, std::int32_t token) {
        order.push_back(i);
        told[i].push_back(token);
    });
    CHECK(told == texts);
    CHECK(std::vector<std::size_t>(order.begin(), order.begin() + 6) == std::vector<std::size_t>{0, 1, 2, 0, 1, 2});

    // The second text ends behind its fourth token; the others do not notice.
    int of_second = 0;
    texts[1].resize(4);
    CHECK(model.generate(eval, prompts, {.max_new_tokens = 12},
                         [&](std::size_t i, std::int32_t) { return i != 1 || ++of_second < 4; }) == texts);
}

/// Calls of generate that share a cache give what calls without one do. `computed`: what the model computed, beyond the new tokens.
template <class Model>
struct counting_model {
    const Model& inner;
    mutable extent computed = 0;

    auto next_logits(auto&& ctx, const ht::const_view<std::int32_t, 2>& tokens, const ht::packed& rows) const {
        computed += tokens.shape()[1];
        return inner.next_logits(ctx, tokens, rows);
    }
    extent context() const { return inner.context(); }
};

TEST_CASE("generate with a prompt_cache: the tokens without one; only what is new is computed") {
    ht::cpu device{{.threads = 2}};
    const lively<ht::nn::llama<ht::amp_bf16>> model(device, llama_of(80));
    ht::inference eval{device};
    for (const auto type : {ht::cache_type::as_computed, ht::cache_type::int8}) {
        const counting_model<ht::nn::llama<ht::amp_bf16>> counted{model};
        ht::prompt_cache cache{device, 2, 80, type};
        const auto check = [&](const std::vector<ids>& prompts, extent most, extent computed) {
            const ht::generation_options o{.max_new_tokens = most, .temperature = 1.1, .seed = 3, .cache = type};
            const auto alone = model.generate(eval, prompts, o);
            counted.computed = 0;
            CHECK(ht::generate(eval, counted, cache, prompts, o) == alone);
            CHECK(counted.computed == computed);
            return alone;
        };
        std::vector<ids> prompts{{1, 2, 3}, {4, 5}};
        const auto made = check(prompts, 5, 3 + 2 + 2 * 4);
        CHECK(cache.length(0) == 7);
        // A turn more: what has keys already, the last of the made tokens not, is kept.
        for (std::size_t i = 0; i < 2; ++i) {
            prompts[i].insert(prompts[i].end(), made[i].begin(), made[i].end());
            prompts[i].insert(prompts[i].end(), {20, 21});
        }
        check(prompts, 3, 2 * 3 + 2 * 2);
        check(prompts, 3, 2 * 1 + 2 * 2);  // again: the last token alone
        // One text is another from its fourth token on, the other one is shorter.
        prompts[0][3] = (prompts[0][3] + 1) % vocabulary, prompts[1].resize(3);
        check(prompts, 2, static_cast<extent>(prompts[0].size()) - 3 + 1 + 2 * 1);
        // A program that ends a text, and one that throws: nothing of an unfinished call is kept.
        ht::generate(eval, counted, cache, prompts, {.max_new_tokens = 9},
                     [](std::size_t, std::int32_t) { return false; });
        CHECK(cache.length(0) == static_cast<extent>(prompts[0].size()));
        CHECK_THROWS_AS(ht::generate(eval, counted, cache, prompts, {.max_new_tokens = 9},
                                     [](std::size_t, std::int32_t) { throw 1; }),
                        int);
        CHECK(cache.length(0) == 0);
        check(prompts, 2, static_cast<extent>(prompts[0].size()) + 3 + 2 * 1);
        cache.clear();
        CHECK(cache.length(1) == 0);
        CHECK(cache.bytes() > 0);
    }
    ht::prompt_cache nested{device, 1, 8};
    const std::vector<ids> one{{1}};
    const auto inside = [&](std::size_t, std::int32_t) {
        ht::generate(eval, model, nested, one, {.max_new_tokens = 2});
    };
    CHECK_THROWS_AS(ht::generate(eval, model, nested, one, {.max_new_tokens = 3}, inside), ht::state_error);
    CHECK(ht::generate(eval, model, nested, one, {.max_new_tokens = 3}) ==
          model.generate(eval, one, {.max_new_tokens = 3}));
    ht::prompt_cache small{device, 1, 4};
    CHECK_THROWS_WITH_AS(ht::generate(eval, model, small, std::vector<ids>{{1}, {2}}),
                         "generate: 2 prompts, and a cache of 1", ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::generate(eval, model, small, std::vector<ids>{{1, 2, 3}}, {.max_new_tokens = 3}),
                         "generate: prompts and new tokens need 5 places; the cache has 4", ht::argument_error);
    CHECK_THROWS_AS(small.length(1), ht::argument_error);
}

TEST_CASE("generate: a function that hears of tokens may keep them behind its own prompts") {
    ht::cpu device{{.threads = 1}};
    const lively<ht::nn::gpt<ht::full_fp32>> model(device, gpt_of(12));
    ht::inference eval{device};
    std::vector<ids> prompts{{1, 2, 3}, {4}};
    const auto alone = model.generate(eval, prompts, {.max_new_tokens = 6});
    const auto made = ht::generate(eval, model, prompts, {.max_new_tokens = 6},
                                   [&](std::size_t i, std::int32_t token) { prompts[i].push_back(token); });
    CHECK(made == alone);
    CHECK(ids(prompts[1].begin() + 1, prompts[1].end()) == alone[1]);
}

TEST_CASE("generate with a prompt_cache: a model of other sizes is refused, and the cache still serves the first one") {
    ht::cpu device{{.threads = 1}};
    const lively<ht::nn::gpt<ht::full_fp32>> model(device, gpt_of(12));
    const lively<ht::nn::gpt<ht::full_fp32>> wide(
        device, ht::nn::gpt_config{.vocabulary = vocabulary, .context = 12, .layers = 2, .heads = 2, .width = 32});
    ht::inference eval{device};
    ht::prompt_cache cache{device, 1, 12};
    const std::vector<ids> prompts{{1, 2, 3}};
    const auto alone = model.generate(eval, prompts, {.max_new_tokens = 9});
    CHECK(ht::generate(eval, model, cache, prompts, {.max_new_tokens = 9}) == alone);
    CHECK_THROWS_AS(ht::generate(eval, wide, cache, prompts, {.max_new_tokens = 2}), ht::state_error);
    CHECK(cache.length(0) == 0);
    CHECK(ht::generate(eval, model, cache, prompts, {.max_new_tokens = 9}) == alone);
}

TEST_CASE("generate: invalid prompts and options") {
    ht::cpu device{{.threads = 1}};
    const lively<ht::nn::gpt<ht::full_fp32>> model(device, gpt_of(8));
    ht::inference eval{device};
    const auto run = [&](const std::vector<ids>& prompts, const ht::generation_options& o) { model.generate(eval, prompts, o); };
    CHECK_THROWS_WITH_AS(run({{1}, {}}, {.max_new_tokens = 2}),
                         "generate: prompt 1 has no tokens; expected at least one, such as a begin-of-text token",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(run({{1}, {1, 2, 3}}, {.max_new_tokens = 6}),
                         "generate: prompt 1 has 3 tokens, and 6 more are requested; the model's context has 8",
                         ht::argument_error);
    CHECK_THROWS_AS(run({ids(9, 1)}, {.max_new_tokens = 0}), ht::argument_error);
    CHECK_THROWS_AS(run({{1}}, {.max_new_tokens = -1}), ht::argument_error);
    CHECK_THROWS_AS(run({{vocabulary}}, {.max_new_tokens = 1}), ht::argument_error);
    CHECK_THROWS_AS(run({{-1}}, {.max_new_tokens = 1}), ht::argument_error);
    CHECK_THROWS_AS(run({{1}}, {.max_new_tokens = 1, .temperature = -1}), ht::argument_error);
}

TEST_CASE("key_value_cache: invalid arguments") {
    ht::cpu device{{.threads = 1}};
    const lively<ht::nn::gpt<ht::full_fp32>> model(device, gpt_of(8));
    ht::inference eval{device};
    CHECK_THROWS_AS((ht::key_value_cache{device, 1, 0}), ht::argument_error);
    CHECK_THROWS_AS((ht::key_value_cache{device, 1 << 16, 1 << 16}), ht::argument_error);
    ht::key_value_cache cache{device, 2, 6};
    const ids tokens{1, 2, 3, 4, 5};
    const auto step = [&](const auto& of, const ids& offsets) {
        return of.next_logits(eval, {tokens.data(), {1, offsets.back()}},
                              ht::packed{{offsets.data(), {static_cast<extent>(offsets.size())}}, &cache});
    };
    CHECK_THROWS_WITH_AS(step(model, {0, 5}), "key_value_cache: 2 offsets; expected 3, the number of sequences plus 1",
                         ht::shape_error);
    CHECK(step(model, {0, 3, 5}).shape() == ht::shape<2>{2, vocabulary});
    CHECK(cache.length(0) == 3);
    CHECK(cache.bytes() == 2 * 2 * 6 * 2 * 16 * sizeof(float));  // layers, sequences, places, keys and values, width, bytes
    CHECK_THROWS_WITH_AS(step(model, {0, 4, 5}), "key_value_cache: sequence 0 has 3 tokens and gets 4; the cache holds 6",
                         ht::shape_error);
    CHECK(cache.length(0) == 3);
    CHECK_THROWS_AS(cache.truncate(0, 4), ht::argument_error);
    CHECK_THROWS_AS(cache.length(2), ht::argument_error);

    // One token is removed, and another takes its position.
    const auto before = ht::to_host(device, step(model, {0, 1, 1}));
    cache.truncate(0, 3);
    CHECK(same_bits(row_of(ht::to_host(device, step(model, {0, 1, 1})), 0), row_of(before, 0)));

    const lively<ht::nn::gpt<ht::full_fp32>> other(
        device, ht::nn::gpt_config{.vocabulary = vocabulary, .context = 8, .layers = 3, .heads = 2, .width = 16});
    CHECK_THROWS_AS(step(other, {0, 1, 1}), ht::state_error);
    ht::tape tape{device};
    const ids offsets{0, 1, 1};
    CHECK_THROWS_WITH_AS(model.logits(tape, {tokens.data(), {1, 1}}, ht::packed{{offsets.data(), {3}}, &cache}),
                         "packed: a key-value cache is for inference contexts; a tape computes all keys",
                         ht::argument_error);
}

TEST_CASE("key_value_cache in eight bits: memory, and tokens that are removed") {
    ht::cpu device{{.threads = 1}};
    const lively<ht::nn::gpt<ht::amp_bf16>> model(device, gpt_of(8));
    ht::inference eval{device};
    const auto step = [&](ht::key_value_cache& cache, const ids& tokens, const ids& offsets) {
        return ht::to_host(device, model.next_logits(eval, row_of(tokens), ht::packed{{offsets.data(), {3}}, &cache}));
    };
    ht::key_value_cache cache{device, 2, 5, ht::cache_type::int8}, plain{device, 2, 5}, once{device, 2, 5, ht::cache_type::int8};
    step(plain, {1, 2, 3}, {0, 2, 3});
    step(cache, {1, 2, 3}, {0, 2, 3});
    CHECK(cache.type() == ht::cache_type::int8);
    CHECK(plain.type() == ht::cache_type::as_computed);
    // layers, sequences, places, keys and values, heads, bytes of a vector of 8 elements
    CHECK(plain.bytes() == 2 * 2 * 5 * 2 * 2 * 8 * sizeof(ht::bfloat16));
    CHECK(cache.bytes() == 2 * 2 * 5 * 2 * 2 * (8 + sizeof(float)));
    cache.truncate(0, 1);
    const auto again = step(cache, {2, 3}, {0, 1, 2}), at_once = step(once, {1, 2, 3, 3}, {0, 2, 4});
    CHECK(same_bits(row_of(again, 0), row_of(at_once, 0)));
    CHECK(same_bits(row_of(again, 1), row_of(at_once, 1)));
}

TEST_CASE("generate: attention with stored scores, whose order of summation depends on the length, chooses the same tokens") {
    ht::cpu device{{.threads = 1}};
    auto config = gpt_of(21);
    config.strategy = ht::attention_strategy::math;
    const lively<ht::nn::gpt<ht::full_fp32>> model(device, config);
    check_generation(device, model, 12);
}

}  // namespace nn_generation_tests
