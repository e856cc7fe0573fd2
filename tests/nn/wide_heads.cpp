// SPDX-License-Identifier: MIT
/// \file
/// Models with heads as wide as real ones against transformers' (golden/wide_heads.py): logits, loss and gradients of a Llama, of one with
/// Llama 3's scaling of angles, its vocabulary and tokens beyond its original context, of a Qwen3, a GPT-2 and an encoder.
#include <algorithm>

#include <halftone/amp.hpp>
#include <halftone/nn/classifier.hpp>
#include <halftone/nn/gpt.hpp>
#include <halftone/nn/llama.hpp>
#include <halftone/policy/recipe.hpp>

#include "nn/golden_model.hpp"

namespace nn_wide_heads_tests {

namespace ht = halftone;
using namespace golden_model;

constexpr int rows = 2, steps = 13;

golden_case golden_of(const std::string& name) {
    for (const golden_case& c : read_cases("wide_heads.txt")) {
        if (c.name == name) return c;
    }
    FAIL("no case " << name);
    return {};
}

/// The model's masters, and tokens and targets behind them, by the generator; for an encoder labels.
struct batch {
    std::vector<std::int32_t> token_ids, target_ids, label_ids;
    ht::const_view<std::int32_t, 2> tokens, targets;
    ht::const_view<std::int32_t, 1> labels;

    explicit batch(ht::store& parameters, ht::extent vocabulary = 32) {
        generator values, again;
        values.fill(parameters);
        token_ids = values.ids(rows * steps, vocabulary);
        again = values;
        target_ids = values.ids(rows * steps, vocabulary), label_ids = again.ids(rows, 5);
        target_ids[3] = -100;
        tokens = {token_ids.data(), {rows, steps}}, targets = {target_ids.data(), {rows, steps}};
        labels = {label_ids.data(), {rows}};
    }
    batch(const batch&) = delete;
};
struct labelled {
    ht::const_view<std::int32_t, 2> tokens;
    ht::const_view<std::int32_t, 1> labels;
};

/// Of more than 2,048 numbers every k-th, as the golden file has them.
template <class T>
doubles sampled(const std::vector<T>& values) {
    const std::size_t stride = values.size() <= 2048 ? 1 : values.size() / 1024 | 1;
    doubles some;
    for (std::size_t i = 0; i < values.size(); i += stride) some.push_back(static_cast<double>(values[i]));
    return some;
}

/// logits_of(context) and loss_of(context) of a model are the golden file's, and so are gradients.
template <class P, class Logits, class Loss>
void compare(ht::cpu& device, ht::store& parameters, const std::string& name, const Logits& logits_of,
             const Loss& loss_of) {
    CAPTURE(name);
    const golden_case golden = golden_of(name);
    ht::inference eval{device};
    CHECK(off(sampled(support::doubles(logits_of(eval).view())), golden.logits) <= allowed<P>(golden.logits_off));
    ht::tape tape{device};
    support::gradient_sink sink(parameters);
    const auto loss = loss_of(tape);
    check_loss<P>(static_cast<double>(loss.item()), golden);
    tape.backward(loss, sink);
    REQUIRE(parameters.entries().size() == golden.gradients.size());
    for (std::size_t i = 0; i < golden.gradients.size(); ++i) {
        CAPTURE(parameters.entries()[i].path);
        CHECK(off(sampled(sink.entry(i)), golden.gradients[i]) <= allowed<P>(golden.gradients_off[i]));
    }
}

ht::nn::llama_config config_of(const std::string& name) {
    ht::nn::llama_config c{.vocab_size = name == "llama3_128" ? 128256 : 32,
                           .hidden_size = 32,
                           .intermediate_size = 20,
                           .num_hidden_layers = 2,
                           .num_attention_heads = 2,
                           .num_key_value_heads = 1,
                           .head_dim = name == "llama_64" ? 64 : 128,
                           .max_position_embeddings = name == "llama3_128" ? 16384 : 16,
                           .rms_norm_eps = name == "qwen3_128" ? 1e-6f : 1e-5f,
                           .rope_theta = name == "qwen3_128" ? 1e6 : 5e5,
                           .tie_word_embeddings = name != "llama_64"};
    if (name == "llama3_128")
        c.rope_scaling = {.factor = 8, .low_frequency = 1, .high_frequency = 4, .original_context = 8192};
    return c;
}

/// A Llama whose tokens are at given positions, of the library's layers.
template <class P>
class llama_at_positions : public ht::nn::model {
    template <class Q>
    using block = ht::nn::llama_block<Q>;

  public:
    using policy = P;

    llama_at_positions(ht::cpu& device, const ht::nn::llama_config& c)
        : model(device),
          embed_(parameters(), c.vocab_size, c.hidden_size),
          h_(parameters(), c.num_hidden_layers, c),
          norm_(parameters(), c.hidden_size, c.rms_norm_eps),
          head_(parameters(), c.vocab_size, c.hidden_size, c.tie_word_embeddings),
          table_(ht::rotary_table(device, c.max_position_embeddings, c.head_dim, {c.rope_theta, c.rope_scaling})) {
        commit(*this, 0);
    }
    template <class Context>
    auto logits(Context&& ctx, const batch& b, const ht::const_view<std::int32_t, 2>& positions) const {
        return head_.logits(ctx, hidden(ctx, b.tokens, positions), embed_.tokens);
    }
    template <class Context>
    auto loss(Context&& ctx, const batch& b, const ht::const_view<std::int32_t, 2>& positions) const {
        return head_.loss(ctx, hidden(ctx, b.tokens, positions), embed_.tokens, b.targets,
                          ht::keep_logits::where_small);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.embed_, self.h_, self.norm_, self.head_); }

  private:
    template <class Context>
    auto hidden(Context&& ctx, const ht::const_view<std::int32_t, 2>& tokens,
                const ht::const_view<std::int32_t, 2>& positions) const {
        const ht::documents at{.positions = ctx.root().to_device(positions)};
        return norm_(ctx, h_(ctx, embed_(ctx, tokens), table_.const_view(), at));
    }

    ht::nn::token_embedding<ht::at<P, "embed">> embed_;
    ht::nn::stack<block, P, "h"> h_;
    ht::nn::rms_norm<ht::at<P, "norm">> norm_;
    ht::nn::language_head<ht::at<P, "head">> head_;
    ht::tensor<float, 2> table_;
};

template <class P, class Model>
void is_as_transformers_has_it(ht::cpu& device, Model& model, const std::string& name) {
    const batch b(model.parameters());
    compare<P>(
        device, model.parameters(), name, [&](auto& ctx) { return model.logits(ctx, b.tokens); },
        [&](auto& ctx) { return model.loss(ctx, b); });
}

TEST_CASE_TEMPLATE("wide heads: a Llama's of 64 and a Qwen3's of 128", P, ht::full_fp32, ht::amp_bf16) {
    ht::cpu device{{.threads = 2}};
    ht::nn::llama<P> model{device, config_of("llama_64")};
    is_as_transformers_has_it<P>(device, model, "llama_64");
    ht::nn::qwen3<P> qwen{device, config_of("qwen3_128")};
    is_as_transformers_has_it<P>(device, qwen, "qwen3_128");
}

TEST_CASE_TEMPLATE("wide heads: Llama 3's of 128 at positions beyond its original context, over its vocabulary", P,
                   ht::full_fp32, ht::amp_bf16) {
    ht::cpu device{{.threads = 2}};
    llama_at_positions<P> model{device, config_of("llama3_128")};
    const batch b(model.parameters(), 128256);
    std::vector<std::int32_t> far{0, 1, 2, 40, 300, 2000, 8000, 8191, 8192, 9001, 12000, 16000, 16383};
    far.resize(rows * steps);
    std::copy_n(far.begin(), steps, far.begin() + steps);
    const ht::const_view<std::int32_t, 2> positions(far.data(), {rows, steps});
    compare<P>(
        device, model.parameters(), "llama3_128", [&](auto& ctx) { return model.logits(ctx, b, positions); },
        [&](auto& ctx) { return model.loss(ctx, b, positions); });
}

TEST_CASE_TEMPLATE("wide heads: a GPT-2's of 64", P, ht::full_fp32, ht::amp_bf16) {
    ht::cpu device{{.threads = 2}};
    ht::nn::gpt<P> model{device, {.vocabulary = 32, .context = 16, .layers = 1, .heads = 2, .width = 128}};
    is_as_transformers_has_it<P>(device, model, "gpt2_64");
}

TEST_CASE_TEMPLATE("wide heads: an encoder's of 64", P, ht::full_fp32, ht::amp_bf16) {
    ht::cpu device{{.threads = 2}};
    ht::nn::classifier<P> model{device,
                                {.encoder = {.vocab_size = 32,
                                             .hidden_size = 128,
                                             .num_hidden_layers = 1,
                                             .num_attention_heads = 2,
                                             .intermediate_size = 24,
                                             .max_position_embeddings = 16},
                                 .num_labels = 5}};
    const batch b(model.parameters());
    compare<P>(
        device, model.parameters(), "bert_64", [&](auto& ctx) { return model.logits(ctx, b.tokens); },
        [&](auto& ctx) {
            return model.loss(ctx, labelled{b.tokens, b.labels});
        });
}

}  // namespace nn_wide_heads_tests
