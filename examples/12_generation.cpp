// SPDX-License-Identifier: MIT
/// \file
/// Lesson 12: generating text token by token, with a cache of keys and values.
///
/// A language model predicts the next token. Generation chooses a token from the prediction, appends it, and predicts again.
/// No token attends to later ones, so that the keys and values of the earlier tokens do not change: they are stored in a
/// cache, and each new token costs one token's work. The results have the same bits as if everything were computed again,
/// whatever other texts are in the batch.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/nn/language_head.hpp>

#include "with_device.hpp"

namespace ht = halftone;
using ids = std::vector<std::int32_t>;

constexpr ht::extent vocabulary = 128, width = 32, heads = 4, context = 64;

template <class P>
struct block {
    ht::nn::layer_norm<ht::at<P, "norm">> norm;
    ht::nn::attention<ht::at<P, "attn">> attn;
    ht::nn::layer_norm<ht::at<P, "mlp_norm">> mlp_norm;
    ht::nn::mlp<ht::at<P, "mlp">> mlp;

    explicit block(ht::store& s) : norm(s, width), attn(s, width, heads), mlp_norm(s, width), mlp(s, width, 2 * width) {}
    auto operator()(auto&& ctx, const auto& x, const ht::documents& at) const {
        const auto mixed = attn(ctx, norm(ctx, x), x, at.sequences);
        return mlp(ctx, mlp_norm(ctx, mixed), mixed);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.norm, self.attn, self.mlp_norm, self.mlp); }
};

// To support a cache, a model passes `rows` to documents_to_device, and the result of that to its layers.
template <class P>
struct writer : ht::nn::model {
    using policy = P;
    ht::nn::embedding<ht::at<P, "embed">> embed;
    ht::nn::stack<block, P, "h"> h;
    ht::nn::layer_norm<ht::at<P, "norm">> norm;
    ht::nn::language_head<ht::at<P, "head">> head;

    explicit writer(auto& device)
        : model{device},
          embed{parameters(), vocabulary, context, width},
          h{parameters(), 2},
          norm{parameters(), width},
          head{parameters(), vocabulary, width, false} {
        commit(*this, 7);
    }
    auto hidden(auto&& ctx, const ht::const_view<std::int32_t, 2>& tokens, const ht::packed& rows) const {
        const ht::documents at = ht::documents_to_device(ctx, rows, tokens.shape(), context);
        return norm(ctx, h(ctx, embed(ctx, tokens, at), at));
    }
    auto logits(auto&& ctx, const ht::const_view<std::int32_t, 2>& tokens, const ht::packed& rows = {}) const {
        return head.logits(ctx, hidden(ctx, tokens, rows), embed.tokens);
    }
    auto loss(auto&& ctx, const ht::const_view<std::int32_t, 2>& tokens, const ht::const_view<std::int32_t, 2>& targets) const {
        return head.loss(ctx, hidden(ctx, tokens, {}), embed.tokens, targets);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.embed, self.h, self.norm, self.head); }
};

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    const std::string text = "to be, or not to be, that is the question.";
    const ids all(text.begin(), text.end());
    const auto length = static_cast<ht::extent>(all.size()) - 1;
    writer<ht::amp_bf16> model{device};
    ht::adamw optimizer{device, model, {.lr = 1e-2}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    for (int step = 0; step < 60; ++step) {
        tape.backward(model.loss(tape, {all.data(), {1, length}}, {all.data() + 1, {1, length}}), acc);
        auto grads = acc.take();
        optimizer.step(grads);
    }

    // By hand: five tokens of one text and two of another in the first step, then one of each, then one of the first only.
    ht::inference eval{device};
    ht::key_value_cache cache{device, 2, context};
    const std::vector<std::pair<ids, ids>> steps{{{all[0], all[1], all[2], all[3], all[4], all[0], all[1]}, {0, 5, 7}},
                                                 {{all[5], all[2]}, {0, 1, 2}},
                                                 {{all[6]}, {0, 1, 1}}};
    for (const auto& [tokens, offsets] : steps) {
        const auto row = static_cast<ht::extent>(tokens.size());
        const auto logits = ht::to_host(
            device, model.logits(eval, {tokens.data(), {1, row}}, ht::packed{{offsets.data(), {3}}, &cache}));
        // The first text in one step and without a cache: the logits of its last token.
        const ht::extent so_far = cache.length(0);
        const auto again = ht::to_host(device, model.logits(eval, {all.data(), {1, so_far}}));
        const bool same = std::memcmp(&logits(0, offsets[1] - 1, 0), &again(0, so_far - 1, 0),
                                      vocabulary * sizeof(logits(0, 0, 0))) == 0;
        std::printf("computed %d tokens, the texts have %d and %d: %s\n", static_cast<int>(row), static_cast<int>(so_far),
                    static_cast<int>(cache.length(1)), same ? "the same bits" : "other bits");
    }
    // Prints: computed 7 tokens, the texts have 5 and 2: the same bits
    // Prints: computed 2 tokens, the texts have 6 and 3: the same bits
    // Prints: computed 1 tokens, the texts have 7 and 3: the same bits
    std::printf("the cache has %zu bytes\n", cache.bytes());
    // Prints: the cache has 32768 bytes

    // ht::generate repeats this until a text ends. Without a temperature it takes the most likely token.
    const std::vector<ids> prompts{ids(all.begin(), all.begin() + 2), ids(all.begin(), all.begin() + 13)};
    for (const ids& more : ht::generate(eval, model, prompts, {.max_new_tokens = 50, .eos = {'.'}}))
        std::printf("... %s\n", std::string(more.begin(), more.end()).c_str());
    // Prints: ...  be, or not to be, that is the question.
    // Prints: ...  to be, that is the question.

    // With a temperature, tokens are drawn. A high one makes their probabilities more equal, a low one less; top-k and top-p
    // exclude the unlikely ones. Below, a thousand draws of four tokens.
    const std::vector<float> logits{2, 1, 0, -1};
    const auto draw = [&](const char* name, const ht::generation_options& o) {
        int counts[4] = {};
        for (std::uint32_t position = 0; position < 1000; ++position) ++counts[ht::sample_token(logits, o, 0, position)];
        std::printf("%-15s %4d %4d %4d %4d\n", name, counts[0], counts[1], counts[2], counts[3]);
    };
    draw("temperature 1", {.temperature = 1});
    draw("temperature 0.5", {.temperature = 0.5});
    draw("top-k 2", {.temperature = 1, .top_k = 2});
    draw("top-p 0.9", {.temperature = 1, .top_p = 0.9});
    // Prints: temperature 1    639  248   82   31
    // Prints: temperature 0.5  872  108   19    1
    // Prints: top-k 2          733  267    0    0
    // Prints: top-p 0.9        657  261   82    0
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
