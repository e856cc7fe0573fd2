// SPDX-License-Identifier: MIT
/// \file
/// The embedding layer: tables, shapes, types.
#include "nn/layers.hpp"

namespace nn_embedding_tests {

namespace ht = halftone;
using nn_test::alone;
using strings = std::vector<std::string>;

TEST_CASE("nn::embedding: rows of both tables") {
    const alone<ht::nn::embedding<ht::at<ht::full_fp32, "embed">>> f(11, 6, 8);
    CHECK(f.paths() == strings{"embed.tokens", "embed.positions"});
    const std::vector<std::int32_t> ids = {3, 10, 0, 3};
    ht::cpu device{{.threads = 1}};
    ht::inference ctx{device};
    const auto x = f.layer(ctx, ht::const_view<std::int32_t, 2>(ids.data(), {2, 2}));
    CHECK(x.shape() == ht::shape<3>{2, 2, 8});
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 8; ++j) {
            CHECK(x.view()(i / 2, i % 2, j) ==
                  f.layer.tokens.values()(ids[static_cast<std::size_t>(i)], j) + f.layer.positions.values()(i % 2, j));
        }
    }
}

TEST_CASE("nn::embedding: empty rows and no rows give an empty tensor and zero gradients") {
    alone<ht::nn::embedding<ht::at<ht::full_fp32, "embed">>> f(11, 6, 8);
    const alone<ht::nn::embedding<ht::at<ht::full_fp32, "embed">>> without_positions(11, 0, 8);
    ht::cpu device{{.threads = 1}};
    const std::int32_t none = 0;
    for (const auto& s : {ht::shape<2>{3, 0}, ht::shape<2>{0, 3}, ht::shape<2>{0, 0}}) {
        ht::tape tape{device};
        support::gradient_sink acc(f.parameters);
        const auto x = f.layer(tape, ht::const_view<std::int32_t, 2>(&none, s));
        CHECK(x.shape() == ht::shape<3>{s[0], s[1], 8});
        tape.backward(ht::sum(tape, x), acc);
        CHECK(acc.entry(0) == std::vector<float>(88, 0.0f));
        CHECK(acc.entry(1) == std::vector<float>(48, 0.0f));
    }
    ht::inference ctx{device};
    const ht::const_view<std::int32_t, 2> empty(&none, {3, 0}), longer(nullptr, {0, 7});
    CHECK(without_positions.layer(ctx, empty).size() == 0);
    CHECK_THROWS_WITH_AS(f.layer(ctx, longer), "embedding: 7 tokens in a row; the context holds 6", ht::shape_error);
    CHECK_THROWS_WITH_AS(without_positions.layer(ctx, ht::const_view<std::int32_t, 2>(&none, {1, 1})),
                         "embedding: 1 tokens in a row; the context holds 0", ht::shape_error);
}

TEST_CASE("nn::embedding: its table is stored as a linear layer's weight is, for a head that is tied to it") {
    using P = ht::at<ht::amp_bf16, "embed">;
    static_assert(std::is_same_v<decltype(ht::nn::embedding<P>::tokens), decltype(ht::nn::linear<P>::weight)>);
    const alone<ht::nn::embedding<P>> f(11, 6, 8);
    CHECK(f.parameters.groups()[0].copy_bytes == 2);
    ht::cpu device{{.threads = 1}};
    ht::inference ctx{device};
    const std::vector<std::int32_t> ids = {1};
    static_assert(std::is_same_v<decltype(f.layer(ctx, ht::const_view<std::int32_t, 2>(ids.data(), {1, 1}))),
                                 ht::variable<float, 3>>);
}

/// A table whose token 2 is padding.
struct padded : ht::nn::model {
    using policy = ht::full_fp32;
    ht::nn::embedding<policy> embed;
    explicit padded(ht::cpu& device) : ht::nn::model(device), embed(parameters(), 4, 3, 8, {.deviation = 1}, 2) { commit(*this, 1); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.embed); }
};

TEST_CASE("embedding: padding_idx's row gets no gradient, and decays with all others, as in PyTorch") {
    const std::vector<std::int32_t> ids{0, 2, 1};
    for (const double decay : {0.0, 0.5}) {
        ht::cpu device;
        padded model{device};
        const auto row = [&](ht::extent token) {
            std::vector<float> all(8);
            model.parameters().memory().read(all.data(), model.embed.tokens.master().data() + 8 * token, 8 * sizeof(float));
            return all;
        };
        const std::vector<float> before = row(2), other = row(0);
        ht::adamw optimizer{device, model, {.lr = 0.1, .weight_decay = decay}};
        ht::accumulator acc{model, ht::unscaled};
        ht::tape tape{device};
        for (int step = 0; step < 3; ++step) {
            tape.backward(ht::mean(tape, model.embed(tape, {ids.data(), {1, 3}})), acc);
            auto gradients = acc.take();
            optimizer.step(gradients);
        }
        const double kept = std::pow(1 - 0.1 * decay, 3);
        for (std::size_t i = 0; i < 8; ++i) {
            CHECK(row(2)[i] == doctest::Approx(kept * static_cast<double>(before[i])).epsilon(1e-6));
            CHECK(std::fabs(static_cast<double>(row(0)[i]) - kept * static_cast<double>(other[i])) > 0.1);  // three steps of 0.1
        }
    }
}

}  // namespace nn_embedding_tests
