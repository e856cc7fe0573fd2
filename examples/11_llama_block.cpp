// SPDX-License-Identifier: MIT
/// \file
/// Lesson 11: the parts of a Llama, and a new block composed of them.
///
/// Llama has no table of positions. The elements of each query and key form pairs, and each pair is rotated by an angle
/// that is proportional to the position (rotary embedding), so that the product of a query and a key depends only on the
/// distance between them. Several heads of queries share one head of keys and values, which saves memory, and the
/// perceptron has a gate. This lesson shows each part alone. Then it composes them to a block that computes attention and
/// perceptron in parallel, as in GPT-J, and trains it.
#include <cstdio>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/nn/gated_mlp.hpp>
#include <halftone/nn/language_head.hpp>
#include <halftone/nn/rotary_attention.hpp>

#include "with_device.hpp"

namespace ht = halftone;

constexpr ht::extent vocabulary = 16, width = 32, heads = 4, context = 16;

// x + attn(norm(x)) + mlp(norm(x)): both read the same norm, so that neither depends on the other.
template <class P>
struct parallel_block {
    ht::nn::rms_norm<ht::at<P, "norm">> norm;
    ht::nn::rotary_attention<ht::at<P, "attn">> attn;
    ht::nn::gated_mlp<ht::at<P, "mlp">> mlp;

    parallel_block(ht::store& s, ht::extent kv_heads)
        : norm(s, width), attn(s, width, {.heads = heads, .kv_heads = kv_heads}), mlp(s, width, 2 * width) {}
    // Each part adds its result to its residual argument: attention to x, the perceptron to that sum.
    auto operator()(auto&& ctx, const auto& x, const ht::const_view<float, 2>& table) const {
        const auto normed = norm(ctx, x);
        return mlp(ctx, normed, attn(ctx, normed, x, table));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.norm, self.attn, self.mlp); }
};

template <class P>
struct language_model : ht::nn::model {
    using policy = P;
    ht::nn::token_embedding<ht::at<P, "embed">> embed;
    ht::nn::stack<parallel_block, P, "h"> h;
    ht::nn::rms_norm<ht::at<P, "norm">> norm;
    ht::nn::language_head<ht::at<P, "head">> head;
    ht::tensor<float, 2> table;  // cosines and sines of all positions, on the device

    language_model(auto& device, ht::extent kv_heads)
        : model{device},
          embed{parameters(), vocabulary, width},
          h{parameters(), 2, kv_heads},
          norm{parameters(), width},
          head{parameters(), vocabulary, width, false},
          table{ht::rotary_table(device, context, width / heads)} {
        commit(*this, 7);
    }
    auto loss(auto&& ctx, const ht::const_view<std::int32_t, 2>& tokens, const ht::const_view<std::int32_t, 2>& targets) const {
        const auto x = norm(ctx, h(ctx, embed(ctx, tokens), table.const_view()));
        return head.loss(ctx, x, embed.tokens, targets);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.embed, self.h, self.norm, self.head); }
};

/// The product of one query and one key at two positions.
float score(auto& device, int at_query, int at_key) {
    const std::vector<float> pair{1, 2, -1, 0.5f, 0.25f, 1, 2, -2};  // q and k of 4 elements, as two heads of one token
    const auto table = ht::rotary_table(device, 64, 4, {.theta = 100});
    ht::inference eval{device};
    const auto x = eval.to_device(ht::const_view<float, 4>(pair.data(), {1, 1, 2, 4}));
    const auto turned = [&](int position) {
        const std::int32_t at[] = {position};
        return ht::to_host(device, ht::rotary(eval, x, table, {}, eval.to_device(ht::const_view<std::int32_t, 2>(at, {1, 1}))));
    };
    const auto q = turned(at_query), k = turned(at_key);
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += q(0, 0, 0, i) * k(0, 0, 1, i);
    return sum;
}

template <class P>
void learn(auto& device, const char* name, ht::extent kv_heads) {
    // A sequence in which every token depends on the one two positions before, which attention has to find.
    std::vector<std::int32_t> text(context + 1);
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = i < 2 ? static_cast<int>(i) : (3 * text[i - 2] + 1) % 16;
    language_model<P> model{device, kv_heads};
    ht::adamw optimizer{device, model, {.lr = 1e-2}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    float first = 0, last = 0;
    for (int step = 0; step < 60; ++step) {
        const auto loss = model.loss(tape, {text.data(), {1, context}}, {text.data() + 1, {1, context}});
        last = loss.item();
        if (step == 0) first = last;
        tape.backward(loss, acc);
        auto grads = acc.take();
        optimizer.step(grads);
    }
    std::printf("%s, %d heads of keys: %d parameters, loss %.1f, in the end %s\n", name, static_cast<int>(kv_heads),
                static_cast<int>(model.parameters().size()), static_cast<double>(first),
                last < first / 10 ? "less than a tenth" : "more than a tenth");
}

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    // Query and key are four positions apart, three times; then five.
    std::printf("scores: %.3f %.3f %.3f, and %.3f\n", static_cast<double>(score(device, 7, 3)),
                static_cast<double>(score(device, 17, 13)), static_cast<double>(score(device, 50, 46)),
                static_cast<double>(score(device, 8, 3)));
    // Prints: scores: -1.390 -1.390 -1.390, and -3.934

    // Heads that share keys and values have fewer parameters, and learn this text equally well.
    learn<ht::amp_bf16>(device, "bf16", 4);
    // Prints: bf16, 4 heads of keys: 21600 parameters, loss 2.8, in the end less than a tenth
    learn<ht::amp_bf16>(device, "bf16", 1);
    // Prints: bf16, 1 heads of keys: 18528 parameters, loss 2.8, in the end less than a tenth
    learn<ht::full_fp32>(device, "fp32", 1);
    // Prints: fp32, 1 heads of keys: 18528 parameters, loss 2.8, in the end less than a tenth
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
