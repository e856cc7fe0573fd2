// SPDX-License-Identifier: MIT
/// \file
/// The role `stream`: which results of models have its type, that of whose policy counts, and that nothing else changes.
#include <halftone/nn/classifier.hpp>
#include <halftone/nn/cross_attention.hpp>
#include <halftone/nn/llama.hpp>
#include <halftone/nn/sparse_embedding.hpp>
#include <halftone/nn/vit.hpp>

#include "nn/layers.hpp"
#include "nn/oracle.hpp"
#include "support/unstated_stream.hpp"

namespace nn_stream_tests {

namespace ht = halftone;
using ht::amp_bf16, ht::at, ht::bfloat16, ht::full_fp32, ht::rule;

using wide = ht::with_stream<amp_bf16, float>;
using sixteen = ht::with_stream<amp_bf16, bfloat16>;
using narrow = ht::with_stream<full_fp32, bfloat16>;
/// Without the role, so that it is `output`.
using unstated = support::amp_bf16_without_stream;
using by_rule = ht::recipe<unstated, rule<"embed", ht::with_output<unstated, float>>>;

// ---- types

using ids = ht::const_view<std::int32_t, 2>;
template <class T>
using rows = ht::variable<T, 3>;
using table = ht::const_view<float, 2>;

template <class Layer, class... Inputs>
using result_on_tape =
    decltype(std::declval<const Layer&>()(std::declval<ht::tape<ht::cpu>&>(), std::declval<const Inputs&>()...));
/// A layer's result on a tape.
template <class Result, class Layer, class... Inputs>
inline constexpr bool gives = std::is_same_v<result_on_tape<Layer, Inputs...>, Result>;

// Embeddings begin the stream.
static_assert(gives<rows<float>, ht::nn::embedding<at<wide, "embed">>, ids> &&
              gives<rows<bfloat16>, ht::nn::embedding<at<narrow, "embed">>, ids> &&
              gives<rows<bfloat16>, ht::nn::embedding<at<unstated, "embed">>, ids> &&
              gives<rows<float>, ht::nn::embedding<at<by_rule, "embed">>, ids>);
static_assert(gives<rows<float>, ht::nn::token_embedding<at<wide, "embed">>, ids> &&
              gives<rows<float>, ht::nn::sparse_embedding<at<wide, "embed">>, ids>);
using pixels = ht::variable<float, 4>;
static_assert(gives<rows<float>, ht::nn::patch_embedding<at<wide, "embed">>, pixels> &&
              gives<rows<bfloat16>, ht::nn::patch_embedding<at<narrow, "embed">>, pixels> &&
              gives<rows<float>, ht::nn::patch_embedding<at<by_rule, "embed">>, pixels> &&
              gives<rows<bfloat16>, ht::nn::patch_embedding<at<unstated, "embed">>, pixels>);

// What does not add to the stream keeps `output`, and what does has the residual's type.
static_assert(gives<rows<bfloat16>, ht::nn::linear<at<wide, "fc">>, rows<float>> &&
              gives<rows<bfloat16>, ht::nn::layer_norm<at<wide, "norm">>, rows<float>> &&
              gives<rows<float>, ht::nn::linear<at<wide, "fc">>, rows<bfloat16>, rows<float>>);
template <class P, class T>
consteval bool blocks_keep() {
    static_assert(gives<rows<T>, ht::nn::transformer_block<at<P, "h">>, rows<T>>);
    static_assert(gives<rows<T>, ht::nn::llama_block<at<P, "h">>, rows<T>, table>);
    static_assert(gives<rows<T>, ht::nn::vit_block<at<P, "h">>, rows<T>>);
    static_assert(gives<rows<T>, ht::nn::encoder_block<at<P, "h">>, rows<T>>);
    static_assert(gives<rows<T>, ht::nn::gated_mlp<at<P, "mlp">>, rows<T>, rows<T>>);
    static_assert(gives<rows<T>, ht::nn::cross_attention<at<P, "attn">>, rows<T>, rows<bfloat16>, rows<T>>);
    return true;
}
static_assert(blocks_keep<wide, float>() && blocks_keep<narrow, bfloat16>());

// The norms of a post-norm encoder give the stream, so that no sum of it is rounded to `output`.
static_assert(gives<rows<float>, ht::nn::stream_layer_norm<at<wide, "norm">>, rows<float>> &&
              gives<rows<float>, ht::nn::encoder<at<wide, "bert">>, ids> &&
              gives<rows<bfloat16>, ht::nn::encoder<at<narrow, "bert">>, ids> &&
              gives<rows<bfloat16>, ht::nn::encoder<at<unstated, "bert">>, ids>);

// A layer that inherits has the stream of its region.
using in_wide = decltype(ht::autocast<wide>(std::declval<ht::tape<ht::cpu>&>()));
static_assert(std::is_same_v<decltype(std::declval<const ht::nn::embedding<at<ht::inherit, "embed">>&>()(
                                 std::declval<in_wide&>(), std::declval<const ids&>())),
                             rows<float>>);

/// A block as a user writes it, with one sum by a layer and one by ht::add.
template <class P>
struct own_block {
    ht::nn::attention<at<P, "attn">> attn;
    ht::nn::linear<at<P, "fc">> fc;
    own_block(ht::store& s, ht::extent width) : attn(s, width, 2), fc(s, width, width) {}
    auto operator()(auto&& ctx, const auto& x) const {
        const auto mixed = attn(ctx, x, x);
        return ht::add<ht::layer_stream<P>>(ctx, mixed, fc(ctx, mixed));
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.attn, self.fc); }
};
static_assert(gives<rows<float>, own_block<at<wide, "h">>, rows<float>> &&
              gives<rows<bfloat16>, own_block<at<narrow, "h">>, rows<bfloat16>>);
// Without a type ht::add gives the wider one, which is a wide stream's.
static_assert(std::is_same_v<decltype(ht::add(std::declval<ht::tape<ht::cpu>&>(), std::declval<rows<float>>(),
                                              std::declval<rows<bfloat16>>())),
                             rows<float>>);

// ---- bits

const ht::nn::gpt_config config{.vocabulary = 19, .context = 8, .layers = 2, .heads = 2, .width = 16};
using numbers = std::vector<std::vector<float>>;

/// The loss and every gradient of a step, on an equal model and batch for every P.
template <class Model>
numbers step_of(Model& model, int checkpoint_every = 0) {
    nn_test::randomize(model, 3);
    model.checkpoint_every(checkpoint_every);
    const nn_test::batch b = nn_test::batch::random(3, 8, 19, 4);
    ht::cpu device{{.threads = 1}};
    ht::tape tape{device};
    support::gradient_sink sink(model.parameters());
    const auto loss = model.loss(tape, b);
    numbers all{{loss.item()}};
    tape.backward(loss, sink);
    for (std::size_t i = 0; i < model.parameters().entries().size(); ++i) all.push_back(sink.entry(i));
    return all;
}
template <class P>
numbers gpt_step(int checkpoint_every = 0) {
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<P> model{device, config, 7};
    return step_of(model, checkpoint_every);
}

TEST_CASE("stream: a GPT's stream in float has the bits of a rule that gives \"embed\" results in float") {
    const numbers got = gpt_step<wide>();
    CHECK(got == gpt_step<by_rule>());
    CHECK(got == gpt_step<wide>(1));  // each block recomputed
    CHECK(got == gpt_step<amp_bf16>());
    CHECK(got != gpt_step<unstated>());
    CHECK(gpt_step<sixteen>() == gpt_step<unstated>());
}

TEST_CASE("stream: that of the policy at \"embed\" counts, before its `output` and before that of any other layer") {
    const numbers plain = gpt_step<unstated>();
    using stated = ht::with_stream<ht::with_output<unstated, float>, bfloat16>;
    CHECK(plain == gpt_step<ht::recipe<unstated, rule<"embed", stated>>>());
    CHECK(plain == gpt_step<ht::recipe<wide, rule<"embed", unstated>>>());
    CHECK(plain == gpt_step<ht::recipe<unstated, rule<"h", wide>, rule<"norm", wide>, rule<"head", wide>>>());
    CHECK(gpt_step<wide>() == gpt_step<ht::recipe<unstated, rule<"embed", wide>>>());
}

TEST_CASE("stream: dropout in a block keeps the stream's type, and its sum is rounded once") {
    ht::cpu device{{.threads = 1}};
    ht::tape tape{device};
    nn_test::alone<ht::nn::mlp<at<wide, "mlp">>> f(16, 32, ht::initial{.deviation = 0.4f},
                                                   ht::initial{.deviation = 0.3f});
    f.layer.residual_dropout = 0.5f;
    const nn_test::input<float, 2> x({9, 16});
    const auto v = tape.leaf(x.view);
    const auto y = f.layer(tape, v, v);
    static_assert(std::is_same_v<decltype(y), const ht::variable<float, 2>>);
    // A dropped element leaves the residual as it is, with bits that bfloat16 does not have.
    int whole = 0;
    for (int i = 0; i < 9; ++i)
        for (int j = 0; j < 16; ++j)
            whole +=
                y.view()(i, j) == x.view(i, j) && x.view(i, j) != static_cast<float>(bfloat16(x.view(i, j))) ? 1 : 0;
    CHECK(whole > 30);
}

}  // namespace nn_stream_tests
