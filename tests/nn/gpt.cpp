// SPDX-License-Identifier: MIT
/// \file
/// A GPT as its user sees it: sizes, paths, equal initial weights under every policy, evaluation, freezing, invalid input.
#include <algorithm>
#include <climits>
#include <cmath>
#include <string>
#include <vector>

#include "nn/layers.hpp"
#include "nn/oracle.hpp"

namespace nn_gpt_tests {

namespace ht = halftone;
using nn_test::batch;
using strings = std::vector<std::string>;

constexpr ht::nn::gpt_config config{.vocabulary = 19, .context = 8, .layers = 2, .heads = 2, .width = 16};

strings paths_of(const ht::store& s) {
    strings all;
    for (const ht::store::entry& e : s.entries()) all.push_back(e.path);
    return all;
}
std::vector<float> all_masters(ht::store& s) {
    std::vector<float> all;
    for (std::size_t i = 0; i < s.entries().size(); ++i)
        all.insert(all.end(), support::masters(s, i), support::masters(s, i) + s.entries()[i].count);
    return all;
}

using with_rules =
    ht::recipe<ht::amp_bf16, ht::rule<"*.norm", ht::full_fp32>, ht::rule<"head", ht::with_output<ht::amp_bf16, float>>,
               ht::rule<"h.0", ht::with_output<ht::amp_fp16, ht::bfloat16>>,
               ht::rule<"h.last.attn.qkv", ht::full_fp32>>;

TEST_CASE("gpt: paths are the same under every recipe, and so are the initial weights") {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::full_fp32> fp32{device, config, 7};
    ht::nn::gpt<ht::amp_bf16> bf16{device, config, 7};
    ht::nn::gpt<with_rules> rules{device, config, 7};
    ht::nn::gpt<ht::full_fp32> other{device, config, 8};
    const strings paths = paths_of(fp32.parameters());
    CHECK(strings(paths.begin(), paths.begin() + 14) ==
          strings{"embed.tokens", "embed.positions", "h.0.attn.norm.gain", "h.0.attn.norm.bias", "h.0.attn.qkv.weight",
                  "h.0.attn.qkv.bias", "h.0.attn.proj.weight", "h.0.attn.proj.bias", "h.0.mlp.norm.gain",
                  "h.0.mlp.norm.bias", "h.0.mlp.up.weight", "h.0.mlp.up.bias", "h.0.mlp.down.weight",
                  "h.0.mlp.down.bias"});
    CHECK(paths.size() == 2 + 2 * 12 + 2);
    CHECK(paths.back() == "norm.bias");
    CHECK(paths_of(bf16.parameters()) == paths);
    CHECK(paths_of(rules.parameters()) == paths);
    const std::vector<float> masters = all_masters(fp32.parameters());
    CHECK(all_masters(bf16.parameters()) == masters);
    CHECK(all_masters(rules.parameters()) == masters);
    CHECK(all_masters(other.parameters()) != masters);
    // 12 width^2 + 13 width a block, the tables, the last norm; the head has no weight of its own.
    CHECK(fp32.parameters().size() == 2 * (12 * 16 * 16 + 13 * 16) + (19 + 8) * 16 + 2 * 16);
    CHECK(masters.size() == fp32.parameters().size());
}

TEST_CASE("gpt: projections into the residual stream have smaller initial weights, gains begin at 1") {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::full_fp32> model{device, {.vocabulary = 64, .context = 16, .layers = 8, .heads = 2, .width = 64}};
    ht::store& s = model.parameters();
    for (std::size_t i = 0; i < s.entries().size(); ++i) {
        const ht::store::entry& e = s.entries()[i];
        CAPTURE(e.path);
        double mean = 0, squares = 0;
        for (std::size_t j = 0; j < e.count; ++j) {
            const double v = static_cast<double>(support::masters(s, i)[j]);
            mean += v / static_cast<double>(e.count), squares += v * v / static_cast<double>(e.count);
        }
        if (e.path.ends_with(".gain")) CHECK((mean == 1 && squares == 1));
        if (e.path.ends_with(".bias")) CHECK(squares == 0);
        if (e.path.ends_with("proj.weight") || e.path.ends_with("down.weight"))
            CHECK(std::sqrt(squares) == doctest::Approx(0.02 / 4).epsilon(0.1));  // sqrt(2 x 8)
        if (e.path.ends_with("qkv.weight") || e.path.ends_with("tokens"))
            CHECK(std::sqrt(squares) == doctest::Approx(0.02).epsilon(0.1));
    }
}

// A plain policy on any part of a bf16 model: the residual stream keeps its type, which is what "embed" gives.
// Whether the rule changes the loss's bits.
template <class Rule>
bool rule_matters() {
    using recipe = ht::recipe<ht::amp_bf16, Rule>;
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<recipe> model{device, config, 7};
    ht::nn::gpt<ht::full_fp32> fp32{device, config, 7};
    ht::nn::gpt<ht::amp_bf16> bf16{device, config, 7};
    nn_test::randomize(model, 3), nn_test::randomize(fp32, 3), nn_test::randomize(bf16, 3);
    const batch b = batch::random(3, 8, 19, 4);
    ht::tape tape{device};
    support::gradient_sink sink(model.parameters());
    const auto loss = model.loss(tape, b);
    const auto of = [&](const auto& m) {
        ht::inference eval{device};
        return m.loss(eval, b).item();
    };
    CHECK(loss.item() == of(model));
    CHECK(loss.item() != of(fp32));  // the rule does not match every layer
    const bool matters = loss.item() != of(bf16);
    tape.backward(loss, sink);
    const ht::store& s = model.parameters();
    for (std::size_t i = 0; i < s.entries().size(); ++i) {
        CAPTURE(s.entries()[i].path);
        bool any = false;
        for (const float g : sink.entry(i)) {
            REQUIRE(std::isfinite(g));
            any = any || g != 0;
        }
        CHECK(any);
    }
    return matters;
}

TEST_CASE("gpt: a rule may assign any part a plain policy") {
    // The norm's result is rounded to bf16 in either case, by the product that reads it.
    SUBCASE("*.norm") { CHECK_FALSE(rule_matters<ht::rule<"*.norm", ht::full_fp32>>()); }
    SUBCASE("h.0.attn") { CHECK(rule_matters<ht::rule<"h.0.attn", ht::full_fp32>>()); }
    SUBCASE("h.0.attn.proj") { CHECK(rule_matters<ht::rule<"h.0.attn.proj", ht::full_fp32>>()); }
    SUBCASE("h.last.mlp") { CHECK(rule_matters<ht::rule<"h.last.mlp", ht::full_fp32>>()); }
    SUBCASE("h.0") { CHECK(rule_matters<ht::rule<"h.0", ht::full_fp32>>()); }
    SUBCASE("h") { CHECK(rule_matters<ht::rule<"h", ht::full_fp32>>()); }
    SUBCASE("embed, and with it the residual stream") { CHECK(rule_matters<ht::rule<"embed", ht::full_fp32>>()); }
    SUBCASE("head") { CHECK(rule_matters<ht::rule<"head", ht::full_fp32>>()); }
}

template <class P>
void evaluation_agrees() {
    ht::cpu device{{.threads = 2}};
    ht::nn::gpt<P> model{device, config};
    nn_test::randomize(model, 3);
    batch b = batch::random(3, 7, 19, 4);
    b.target_ids[4] = -100;
    ht::tape tape{device};
    ht::inference eval{device};
    const float trained = model.loss(tape, b).item();
    tape.clear();
    CHECK(model.loss(eval, b).item() == trained);
    const auto logits = model.logits(eval, b.tokens);
    CHECK(logits.shape() == ht::shape<3>{3, 7, 19});
    CHECK(ht::cross_entropy(eval, logits, b.targets).item() == trained);
    CHECK(eval.graph().records() == 0);
    // Rows depend neither on each other nor on later tokens.
    const auto first = model.logits(eval, ht::const_view<std::int32_t, 2>(b.token_ids.data(), {1, 4}));
    for (int t = 0; t < 4; ++t) {
        for (int j = 0; j < 19; ++j)
            REQUIRE(static_cast<float>(first.view()(0, t, j)) == static_cast<float>(logits.view()(0, t, j)));
    }
}

TEST_CASE("gpt: the loss is the same with a tape, without one, and from the logits") {
    SUBCASE("full_fp32") { evaluation_agrees<ht::full_fp32>(); }
    SUBCASE("amp_bf16 with fp32 logits") {
        evaluation_agrees<ht::recipe<ht::amp_bf16, ht::rule<"head", ht::with_output<ht::amp_bf16, float>>>>();
    }
}

TEST_CASE("gpt: layers that inherit follow the region that the model is called in") {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::inherit> model{device, config, 5};
    ht::nn::gpt<ht::full_fp32> fp32{device, config, 5};
    ht::nn::gpt<ht::amp_bf16> bf16{device, config, 5};
    const batch b = batch::random(2, 8, 19, 6);
    ht::inference eval{device};
    CHECK(model.loss(eval, b).item() == fp32.loss(eval, b).item());
    // Not the same bits as a model that is stored for bf16: tables and biases are read as fp32 here.
    CHECK(model.loss(ht::autocast<ht::amp_bf16>(eval), b).item() != fp32.loss(eval, b).item());
    static_assert(std::is_same_v<decltype(model.logits(ht::autocast<ht::amp_bf16>(eval), b.tokens)),
                                 ht::variable<ht::bfloat16, 3>>);
    static_assert(std::is_same_v<decltype(model.logits(eval, b.tokens)), ht::variable<float, 3>>);
    CHECK(bf16.loss(ht::autocast<ht::full_fp32>(eval), b).item() == bf16.loss(eval, b).item());
}

template <class P>
void frozen_parts() {
    ht::cpu device{{.threads = 1}};
    const batch b = batch::random(2, 8, 19, 6);
    const auto gradients = [&](const char* pattern) {
        ht::nn::gpt<P> model{device, config, 5};
        if (pattern != nullptr) model.parameters().freeze(pattern);
        support::gradient_sink sink(model.parameters());
        ht::tape tape{device};
        tape.backward(model.loss(tape, b), sink);
        std::vector<std::vector<float>> all;
        const ht::store& s = model.parameters();
        for (std::size_t i = 0; i < s.entries().size(); ++i)
            all.push_back(s.entries()[i].frozen ? std::vector<float>{} : sink.entry(i));
        return all;
    };
    const auto all = gradients(nullptr);
    for (const char* pattern :
         {"embed", "embed.positions", "h.0", "*.norm", "*.weight", "*.bias", "h.*.attn", "norm"}) {
        CAPTURE(std::string(pattern));
        const auto some = gradients(pattern);
        int frozen = 0;
        for (std::size_t i = 0; i < all.size(); ++i) {
            frozen += some[i].empty() ? 1 : 0;
            if (some[i].empty()) continue;
            if (std::string(pattern) != "embed") {
                CHECK(some[i] == all[i]);
                continue;
            }
            // The table of tokens is the head's, too: where it is frozen, the gradient below it is summed in another order.
            float apart = 0, largest = 0;
            for (std::size_t j = 0; j < all[i].size(); ++j) {
                apart = std::max(apart, std::fabs(some[i][j] - all[i][j]));
                largest = std::max(largest, std::fabs(all[i][j]));
            }
            CHECK(apart <= largest * (std::is_same_v<P, ht::full_fp32> ? 1e-5f : 0.03f));
        }
        CHECK(frozen > 0);
    }
}

TEST_CASE("gpt: freezing some parameters leaves the bits of all other gradients") {
    SUBCASE("full_fp32") { frozen_parts<ht::full_fp32>(); }
    // The head reads the frozen table's master, which therefore stays.
    SUBCASE("amp_bf16, and a head in fp32") {
        frozen_parts<ht::recipe<ht::amp_bf16, ht::rule<"head", ht::full_fp32>>>();
    }
}

TEST_CASE("gpt: a frozen model computes its loss and has no gradients") {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::amp_bf16> model{device, config};
    const auto masters = device.memory().usage().live(ht::memory_kind::master);
    model.parameters().freeze("*");
    CHECK(device.memory().usage().live(ht::memory_kind::master) < masters / 4);
    ht::tape tape{device};
    const batch b = batch::random(2, 8, 19, 6);
    const auto loss = model.loss(tape, b);
    CHECK(loss.item() > 0);
    CHECK(tape.graph().records() == 0);
    CHECK_THROWS_WITH_AS(tape.backward(loss), "tape: backward of a loss that depends on no parameter and no leaf",
                         ht::argument_error);
}

TEST_CASE("gpt: attention by the strategy of the configuration") {
    ht::cpu device{{.threads = 1}};
    const batch b = batch::random(2, 8, 19, 6);
    const auto logits_by = [&](ht::attention_strategy strategy) {
        ht::nn::gpt_config c = config;
        c.strategy = strategy;
        const ht::nn::gpt<ht::amp_bf16> model{device, c};
        ht::inference eval{device};
        return support::doubles(model.logits(eval, b.tokens).view());
    };
    const std::vector<double> flash = logits_by(ht::attention_strategy::flash);
    CHECK(logits_by(ht::attention_strategy::automatic) == flash);
    CHECK(logits_by(ht::attention_strategy::math) != flash);
}

TEST_CASE("gpt: invalid configurations") {
    ht::cpu device{{.threads = 1}};
    const auto make = [&](const ht::nn::gpt_config& c) { ht::nn::gpt<ht::full_fp32> model{device, c}; };
    CHECK_THROWS_WITH_AS(make({.vocabulary = 0}), "gpt: vocabulary is 0; expected 1 to 2147483648", ht::argument_error);
    CHECK_THROWS_WITH_AS(make({.context = -1}), "gpt: context is -1; expected 1 to 2147483648", ht::argument_error);
    CHECK_THROWS_WITH_AS(make({.layers = 0}), "gpt: layers is 0; expected 1 to 65536", ht::argument_error);
    CHECK_THROWS_WITH_AS(make({.layers = INT_MAX}), "gpt: layers is 2147483647; expected 1 to 65536",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(make({.heads = 0}), "gpt: heads is 0; expected 1 to 2147483648", ht::argument_error);
    CHECK_THROWS_WITH_AS(make({.width = ht::extent{1} << 40}), "gpt: width is 1099511627776; expected 1 to 2147483648",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(make({.heads = 3, .width = 64}), "gpt: 3 heads do not divide a width of 64",
                         ht::argument_error);
    CHECK_THROWS_AS(make({.heads = 1, .width = 512, .strategy = ht::attention_strategy::flash}), ht::argument_error);
    ht::cpu small{{.threads = 1, .memory_limit = 1 << 16}};
    CHECK_THROWS_AS((ht::nn::gpt<ht::full_fp32>{small, {}}), ht::out_of_memory);
    // Sizes that are valid individually but not together.
    CHECK_THROWS_AS(make({.vocabulary = ht::extent{1} << 31, .heads = 1 << 25, .width = ht::extent{1} << 31}),
                    ht::shape_error);
    CHECK_THROWS_AS(make({.layers = 128, .heads = 1 << 22, .width = 1 << 28}), ht::out_of_memory);
    CHECK(small.memory().usage().live() == 0);
}

TEST_CASE("gpt: invalid batches") {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::amp_bf16> model{device, config};
    ht::tape tape{device};
    support::gradient_sink sink(model.parameters());
    batch b = batch::random(2, 8, 19, 6);
    struct unequal {
        ht::const_view<std::int32_t, 2> tokens, targets;
    };
    CHECK_THROWS_WITH_AS(model.loss(tape, unequal{b.tokens, {b.target_ids.data(), {2, 7}}}),
                         "gpt: tokens are (2, 8), targets (2, 7)", ht::shape_error);
    const batch too_long = batch::random(1, 9, 19, 6);
    CHECK_THROWS_WITH_AS(model.loss(tape, too_long), "embedding: 9 tokens in a row; the context holds 8",
                         ht::shape_error);
    b.token_ids[3] = 19;
    CHECK_THROWS_WITH_AS(model.loss(tape, b), "embedding: the token of row 3 is 19; expected 0 to 18",
                         ht::argument_error);
    b.token_ids[3] = 0, b.target_ids[15] = -1;
    CHECK_THROWS_WITH_AS(model.loss(tape, b),
                         "cross_entropy: the target of row 15 is -1; expected 0 to 18, or -100 to ignore the row",
                         ht::argument_error);
    // The failed forward pass left records on the tape; the next step is unaffected.
    b.target_ids[15] = 1;
    tape.backward(model.loss(tape, b), sink);
    const auto after = sink.entry(4);
    sink.close();
    ht::tape fresh{device};
    fresh.backward(model.loss(fresh, b), sink);
    CHECK(sink.entry(4) == after);
}

TEST_CASE("gpt: a batch without rows and one without targets have the loss NaN and zero gradients") {
    ht::cpu device{{.threads = 2}};
    ht::nn::gpt<ht::amp_bf16> model{device, config};
    ht::tape tape{device};
    support::gradient_sink sink(model.parameters());
    const batch no_rows(0, 8, {}, {}), no_times(3, 0, {}, {});
    batch no_targets = batch::random(2, 8, 19, 6);
    no_targets.target_ids.assign(16, -100);
    for (const batch* b : {&no_rows, &no_times, static_cast<const batch*>(&no_targets)}) {
        const auto loss = model.loss(tape, *b);
        CHECK(std::isnan(loss.item()));
        tape.backward(loss, sink);
        for (std::size_t i = 0; i < model.parameters().entries().size(); ++i) {
            for (const float g : sink.entry(i)) REQUIRE(g == 0.0f);
        }
        sink.close();
    }
}

TEST_CASE("gpt: bf16 activations take less memory than fp32, inference less than training") {
    const batch b = batch::random(8, 8, 19, 6);
    const auto peak = [&](auto policy, bool trains) {
        ht::cpu device{{.threads = 1}};
        ht::nn::gpt<decltype(policy)> model{device, config};
        support::gradient_sink sink(model.parameters());
        if (trains) {
            ht::tape tape{device};
            tape.backward(model.loss(tape, b), sink);
        } else {
            ht::inference eval{device};
            static_cast<void>(model.loss(eval, b));
        }
        CHECK(device.memory().usage().live(ht::memory_kind::activation) == 0);
        return static_cast<double>(device.memory().usage().peak(ht::memory_kind::activation));
    };
    const double fp32 = peak(ht::full_fp32{}, true), bf16 = peak(ht::amp_bf16{}, true),
                 fp16 = peak(ht::amp_fp16{}, true);
    CHECK(bf16 < 0.6 * fp32);  // statistics of norms and attention stay in fp32
    CHECK(fp16 == bf16);
    CHECK(peak(ht::full_fp32{}, false) < 0.5 * fp32);
    CHECK(peak(ht::amp_bf16{}, false) < 0.5 * bf16);
}

}  // namespace nn_gpt_tests
