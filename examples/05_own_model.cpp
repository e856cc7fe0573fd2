// SPDX-License-Identifier: MIT
/// \file
/// Lesson 5: your own model, with its precision layer by layer.
///
/// A small transformer of our own learns a sentence, byte by byte. Its code says nothing about precision: every layer
/// is given at<P, "its name">, and a recipe outside says what runs in which type.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/policy/table.hpp>

#include "with_device.hpp"

namespace ht = halftone;

struct config {
    ht::extent vocabulary = 128, context = 48, width = 32, heads = 2;
    int depth = 2;
};

/// A block is a template over its policy, so that each of a stack may have its own. Its layers' paths follow from at<>;
/// visit shows the library what is inside.
template <class P>
struct block {
    ht::nn::layer_norm<ht::at<P, "norm">> norm;
    ht::nn::attention<ht::at<P, "attn">> attn;
    ht::nn::linear<ht::at<P, "fc">> fc;

    block(ht::store& s, const config& c) : norm{s, c.width}, attn{s, c.width, c.heads}, fc{s, c.width, c.width} {}

    auto operator()(auto&& ctx, const auto& x) const {  // (batch, time, width)
        const auto mixed = attn(ctx, norm(ctx, x), x);  // x is added in the product's epilogue
        return ht::add(ctx, mixed, ht::gelu(ctx, fc(ctx, mixed)));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.norm, self.attn, self.fc); }
};

/// The outermost layer is a model: it owns the store, where the parameters of all its layers live.
template <class P>
struct reader : ht::nn::model {
    using policy = P;
    ht::nn::embedding<ht::at<P, "embed">> embed;
    ht::nn::stack<block, P, "h"> h;
    ht::nn::layer_norm<ht::at<P, "norm">> norm;
    ht::nn::linear<ht::at<P, "head">> head;

    reader(auto& device, const config& c)
        : model{device},
          embed{parameters(), c.vocabulary, c.context, c.width},
          h{parameters(), c.depth, c},
          norm{parameters(), c.width},
          head{parameters(), c.width, c.vocabulary} {
        commit(*this, 7);  // allocates the memory, and checks that every rule names a layer
    }
    auto logits(auto&& ctx, const ht::const_view<std::int32_t, 2>& tokens) const {  // (batch, time, vocabulary)
        const auto x = norm(ctx, h(ctx, embed(ctx, tokens)));
        // A region is an object: a layer that inherits, called in it, computes by the region's policy.
        return head(ht::autocast<ht::full_fp32>(ctx), x);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.embed, self.h, self.norm, self.head); }
};

// The last block's fc computes in fp32 and gives bf16: ht::add gives the wider type of its operands, and a block must
// return the type that it takes. The head inherits its policy: it computes as the region in which logits() calls it
// says.
using fp32_inside = ht::with_output<ht::full_fp32, ht::bfloat16>;
using recipe = ht::recipe<ht::amp_bf16, ht::rule<"*.norm", ht::full_fp32>, ht::rule<"h.last.fc", fp32_inside>,
                          ht::rule<"head", ht::inherit>>;

/// Parameters with the same storage types form a group and are contiguous, so that an optimizer updates them in one
/// pass.
void print_groups(const ht::store& parameters) {
    for (std::size_t group = 0; group < parameters.groups().size(); ++group) {
        std::size_t count = 0, tensors = 0;
        for (const auto& e : parameters.entries()) {
            if (e.group == group) count += e.count, ++tensors;
        }
        std::printf("%zu parameters in %zu tensors: %zu bytes of master each, %zu of rounded copy\n", count, tensors,
                    parameters.groups()[group].param_bytes, parameters.groups()[group].copy_bytes);
    }
}

/// The lesson; `device` is a ht::cpu, or a ht::cuda.
void lesson(auto& device) {
    const config c;
    reader<recipe> model{device, c};
    ht::print_policies<reader<recipe>>(std::cout);
    print_groups(model.parameters());
    // Prints: path              op          in        accumulate  out
    // Prints: h.*.norm          layer_norm  float     float       float
    // Prints: h.*.fc            linear      bfloat16  float       bfloat16
    // Prints: h.last.fc         linear      float     float       bfloat16
    // Prints: head              linear      inherit   inherit     inherit
    // Prints: 15136 parameters in 12 tensors: 4 bytes of master each, 2 of rounded copy
    // Prints: 5472 parameters in 10 tensors: 4 bytes of master each, 0 of rounded copy

    const std::string text = "to be, or not to be, that is the question.";
    const std::vector<std::int32_t> bytes(text.begin(), text.end());
    const auto length = static_cast<ht::extent>(bytes.size()) - 1;
    const ht::const_view<std::int32_t, 2> tokens(bytes.data(), {1, length}), targets(bytes.data() + 1, {1, length});

    // The optimizer's groups use the same paths: norms and biases are better without decay.
    ht::adamw optimizer{device, model, {.lr = 1e-2, .weight_decay = 0.1}, {{"*.norm", {.weight_decay = 0}}}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device};
    for (int step = 0; step <= 20; ++step) {
        const auto loss = ht::cross_entropy(tape, model.logits(tape, tokens), targets);
        if (step % 10 == 0) std::printf("step %d: loss %.1f\n", step, static_cast<double>(loss.item()));
        tape.backward(loss, acc);
        auto grads = acc.take();
        ht::clip_grad_norm(device, grads, 1.0f);
        optimizer.step(grads);
    }
    // Prints: step 0: loss 5.2
    // Prints: step 10: loss 0.2
    // Prints: step 20: loss 0.0

    // The same code in an inference context, which records nothing. Free operations follow a region, too: this softmax
    // computes in fp32 and gives float, whatever the logits' type.
    ht::inference eval{device};
    std::vector<std::int32_t> said(bytes.begin(), bytes.begin() + 3);
    while (said.back() != '.' && said.size() < bytes.size()) {
        const auto so_far = static_cast<ht::extent>(said.size());
        const auto logits = model.logits(eval, ht::const_view<std::int32_t, 2>(said.data(), {1, so_far}));
        const auto probabilities = ht::softmax(ht::autocast<ht::full_fp32>(eval), logits);
        const auto all = ht::to_host(device, probabilities);  // (1, so_far, vocabulary)
        const float* next = &all(0, so_far - 1, 0);
        said.push_back(static_cast<std::int32_t>(std::max_element(next, next + c.vocabulary) - next));
    }
    std::printf("it says: %s\n", std::string(said.begin(), said.end()).c_str());
    // Prints: it says: to be, or not to be, that is the question.
}

int main(int argc, char** argv) {
    return with_device(argc, argv, [](auto& device) { lesson(device); });
}
