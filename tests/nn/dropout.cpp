// SPDX-License-Identifier: MIT
/// \file
/// The dropout layer, and dropout in a GPT: when it is active; otherwise it costs nothing.
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>
#include <halftone/autodiff/op/apply.hpp>
#include <halftone/nn/dropout.hpp>

#include "nn/oracle.hpp"
#include "support/gradient_sink.hpp"

namespace nn_dropout_tests {

namespace ht = halftone;
using nn_test::batch;

constexpr ht::nn::gpt_config base_config{.vocabulary = 11, .context = 6, .layers = 2, .heads = 2, .width = 8};

ht::nn::gpt_config with_dropout(float p) {
    ht::nn::gpt_config c = base_config;
    c.dropout = p;
    return c;
}

TEST_CASE("nn::dropout: a layer without parameters, whose probability is checked by the constructor") {
    ht::cpu device{{.threads = 1}};
    const std::vector<float> ones(100, 1.0f);
    const ht::nn::dropout drop{0.5f};
    ht::inference inference{device};
    const auto x = inference.constant(ht::const_view<float, 1>(ones.data(), {100}));
    CHECK(drop(inference, x).view().data() == x.view().data());
    ht::tape tape{device};
    const auto leaf = tape.leaf(ht::const_view<float, 1>(ones.data(), {100}));
    const auto y = drop(tape, leaf), z = drop(tape, leaf, leaf);
    for (ht::extent i = 0; i < 100; ++i) {
        CHECK_UNARY((y.view()(i) == 0 || y.view()(i) == 2));
        CHECK_UNARY((z.view()(i) == 1 || z.view()(i) == 3));
    }
    CHECK(drop.p() == 0.5f);
    CHECK_THROWS_WITH_AS(ht::nn::dropout{1.1f}, "dropout: p is 1.1; expected 0 to 1", ht::argument_error);
    CHECK_THROWS_WITH_AS((ht::nn::gpt<ht::full_fp32>{device, with_dropout(-1)}),
                         "gpt: dropout: p is -1; expected 0 to 1", ht::argument_error);
}

/// A perceptron inside a custom operation: its parameters are constants there, and dropout is not allowed.
struct through_mlp {
    static constexpr const char* name = "through_mlp";
    static auto forward(auto& ctx, const auto& x, const auto* layer) { return (*layer)(ctx, x, x); }
    static auto backward(auto&, const auto& dy) { return dy; }
};
struct through_attention {
    static constexpr const char* name = "through_attention";
    static auto forward(auto& ctx, const auto& x, const auto* layer) { return (*layer)(ctx, x); }
    static auto backward(auto&, const auto& dy) { return dy; }
};

TEST_CASE("nn: layers with dropout are refused within a custom operation, and work without dropout") {
    ht::cpu device{{.threads = 1}};
    ht::store parameters(device.memory());
    ht::nn::mlp<ht::full_fp32> mlp(parameters, 4, 8);
    ht::nn::attention<ht::full_fp32> attention(parameters, 4, 2);
    parameters.commit(1);
    const std::vector<float> ones(24, 1.0f);
    const auto check = [&](auto&& ctx) {
        const auto x = ctx.root().constant(ht::const_view<float, 3>(ones.data(), {2, 3, 4}));
        mlp.residual_dropout = attention.residual_dropout = 0.25f;
        const std::string rest =
            ": residual_dropout is 0.25, and the functions of a custom operation (ht::apply) run in a context "
            "that does not record, where dropout would do nothing even in training: call the layer on the tape, before "
            "or after ht::apply, or set its residual_dropout to 0";
        CHECK_THROWS_WITH_AS(ht::apply<through_mlp>(ctx, x, &mlp), ("mlp" + rest).c_str(), ht::argument_error);
        CHECK_THROWS_WITH_AS(ht::apply<through_attention>(ctx, x, &attention), ("attention" + rest).c_str(),
                             ht::argument_error);
        mlp.residual_dropout = attention.residual_dropout = 0;
        const auto direct = mlp(ctx, x, x), within = ht::apply<through_mlp>(ctx, x, &mlp);
        for (ht::extent i = 0; i < direct.size(); ++i) CHECK(direct.view().data()[i] == within.view().data()[i]);
        CHECK(ht::apply<through_attention>(ctx, x, &attention).shape() == x.shape());
    };
    ht::tape tape{device};
    check(tape);
    check(ht::autocast<ht::full_fp32>(tape));
    ht::tape twice{device, ht::double_backward};
    check(twice);
    ht::inference inference{device};
    check(inference);
}

/// A scalar of the model's loss in a tape's pass, and its gradients.
template <class Model, class Tape>
float loss_and_gradients(Model& model, Tape& tape, const batch& b, std::vector<std::vector<float>>& gradients) {
    support::gradient_sink sink(model.parameters());
    const auto loss = model.loss(tape, b);
    const float value = loss.item();
    tape.backward(loss, sink);
    gradients.clear();
    for (std::size_t i = 0; i < model.parameters().entries().size(); ++i) gradients.push_back(sink.entry(i));
    return value;
}

TEST_CASE("gpt with dropout: acts on tapes, repeats with the tape's state, and is off in inference") {
    ht::cpu device{{.threads = 2}};
    ht::nn::gpt<ht::full_fp32> plain{device, base_config, 5}, model{device, with_dropout(0.25f), 5};
    const batch b = batch::random(3, 5, 11, 4);
    ht::inference inference{device};
    CHECK(model.loss(inference, b).item() == plain.loss(inference, b).item());
    ht::tape tape{device}, other{device};
    std::vector<std::vector<float>> g, h;
    const float first = loss_and_gradients(model, tape, b, g);
    CHECK(tape.graph().random.drawn(tape.graph().pass() - 1) == 5);  // the embeddings, and two in each block
    CHECK(first != plain.loss(inference, b).item());
    CHECK(loss_and_gradients(model, tape, b, h) != first);
    tape.seed(0);
    CHECK(loss_and_gradients(model, tape, b, h) == first);
    CHECK(g == h);
    ht::cpu alone{{.threads = 1}};
    ht::nn::gpt<ht::full_fp32> same{alone, with_dropout(0.25f), 5};
    ht::tape its{alone};
    CHECK(loss_and_gradients(same, its, b, h) == first);
    CHECK(g == h);
    // Without dropout nothing is drawn, and no memory is allocated for it.
    const std::size_t before = device.memory().usage().live(ht::memory_kind::other);
    loss_and_gradients(plain, other, b, h);
    CHECK(other.random_state() == ht::random_state{});
    CHECK(other.graph().random.drawn(other.graph().pass() - 1) == 0);
    CHECK(device.memory().usage().live(ht::memory_kind::other) == before);
}

TEST_CASE("gpt with dropout: its gradients are those of the function with the mask held fixed") {
    // In fp32 throughout. Central differences over h = 2^-7: the third derivative makes an error of h²/6 times it,
    // rounding one of 2^-24 |loss| / h and some dozens of such in the loss itself; both are far below a fiftieth of the
    // gradients' scale.
    ht::cpu device{{.threads = 1}};
    ht::nn::gpt<ht::full_fp32> model{device, with_dropout(0.25f), 5};
    nn_test::randomize(model, 3);
    const batch b = batch::random(3, 5, 11, 4);
    ht::tape tape{device};
    std::vector<std::vector<float>> g;
    tape.seed(9);
    loss_and_gradients(model, tape, b, g);
    auto& parameters = model.parameters();
    const auto loss_at = [&](std::size_t entry, std::size_t element, float value) {
        std::vector<float> masters = support::read_masters(parameters, entry);
        const float was = masters[element];
        masters[element] = value;
        support::write_masters(parameters, entry, masters);
        tape.seed(9);
        const auto loss = model.loss(tape, b).item();
        tape.clear();
        masters[element] = was;
        support::write_masters(parameters, entry, masters);
        return static_cast<double>(loss);
    };
    double squares = 0, differences = 0;
    constexpr float h = 0x1p-7f;
    for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
        for (std::size_t element = 0; element < g[i].size(); element += 1 + g[i].size() / 4) {
            const float at = support::read_masters(parameters, i)[element];
            const double slope =
                (loss_at(i, element, at + h) - loss_at(i, element, at - h)) / static_cast<double>(2 * h);
            squares += slope * slope;
            differences += (slope - static_cast<double>(g[i][element])) * (slope - static_cast<double>(g[i][element]));
        }
    }
    CHECK(squares > 0);
    CHECK(differences < squares / 2500);
}

}  // namespace nn_dropout_tests
