// SPDX-License-Identifier: MIT
/// \file
/// Attention over another sequence: its products around the operation, grouped heads, functions of scores, invalid sizes.
#include <halftone/nn/cross_attention.hpp>

#include "nn/layers.hpp"

namespace nn_cross_attention_tests {

namespace ht = halftone;
using nn_test::alone;
using nn_test::input;
using strings = std::vector<std::string>;
using layer = ht::nn::cross_attention<ht::at<ht::full_fp32, "cross">>;

const ht::nn::cross_attention_config config{
    .width = 8, .memory_width = 6, .heads = 4, .groups = 2, .inner = {.deviation = 0.5f}, .projection = {.deviation = 0.5f}};

TEST_CASE("nn::cross_attention: four products around the operation") {
    const alone<layer> f(config);
    CHECK(f.paths() == strings{"cross.q.weight", "cross.q.bias", "cross.k.weight", "cross.k.bias", "cross.v.weight",
                               "cross.v.bias", "cross.proj.weight", "cross.proj.bias"});
    CHECK(f.layer.k.weight.shape() == ht::shape<2>{4, 6});
    const input<float, 3> x(ht::shape<3>{2, 5, 8}), memory(ht::shape<3>{2, 7, 6}, 2);
    ht::cpu device{{.threads = 1}};
    ht::inference ctx{device};
    const auto v = ctx.constant(x.view), m = ctx.constant(memory.view);
    const auto apart = [&](const auto& y, ht::extent heads) {
        return ht::reshape(ctx, y, ht::shape<4>{2, y.shape()[1], heads, 2});
    };
    const auto q = apart(f.layer.q(ctx, v), 4), k = apart(f.layer.k(ctx, m), 2), w = apart(f.layer.v(ctx, m), 2);
    const auto o = ht::reshape(ctx, ht::attention(ctx, q, k, w), ht::shape<3>{2, 5, 8});
    CHECK(support::doubles(f.layer(ctx, v, m, v).view()) == support::doubles(f.layer.proj(ctx, o, v).view()));
    CHECK(support::doubles(f.layer(ctx, v, m).view()) == support::doubles(f.layer.proj(ctx, o).view()));
}

TEST_CASE("nn::cross_attention: padded keys have no effect") {
    const alone<layer> f(config);
    const input<float, 3> x(ht::shape<3>{2, 5, 8});
    input<float, 3> memory(ht::shape<3>{2, 7, 6}, 2);
    const std::vector<std::int32_t> lengths{7, 3};
    const ht::const_view<std::int32_t, 1> of_lengths(lengths.data(), {2});
    ht::cpu device{{.threads = 1}};
    const auto results = [&] {
        ht::inference ctx{device};
        const auto y = f.layer(ctx, ctx.constant(x.view), ctx.constant(memory.view), ht::absent{}, ht::key_lengths(of_lengths));
        return support::doubles(y.view());
    };
    const auto before = results();
    memory.values[7 * 6 + 3 * 6] = std::numeric_limits<float>::quiet_NaN();
    CHECK(results() == before);
    memory.values[7 * 6] += 1;
    CHECK(results() != before);
}

TEST_CASE("nn::cross_attention: dropout of probabilities, only on a tape") {
    const alone<layer> f(config);
    const input<float, 3> x(ht::shape<3>{2, 5, 8}), memory(ht::shape<3>{2, 7, 6}, 2);
    ht::cpu device{{.threads = 1}};
    ht::inference eval{device};
    ht::tape tape{device};
    const auto run = [&](auto& ctx, const auto&... functions) {
        const auto y = f.layer(ctx, ctx.constant(x.view), ctx.constant(memory.view), ht::absent{}, functions...);
        return support::doubles(y.view());
    };
    const auto plain = run(eval);
    CHECK(run(eval, ht::attention_dropout{0.5f}) == run(eval, ht::attention_dropout{0}));
    CHECK(run(tape) == plain);
    CHECK(run(tape, ht::attention_dropout{0.5f}) != run(tape, ht::attention_dropout{0}));
    CHECK_THROWS_WITH_AS(run(tape, ht::attention_dropout{1.5f}), "attention_dropout: p is 1.5; expected 0 to 1",
                         ht::argument_error);
}

TEST_CASE("nn::cross_attention: invalid sizes") {
    ht::host_memory memory;
    ht::store s(memory);
    CHECK_THROWS_WITH_AS(layer(s, {.width = 8, .heads = 3}), "cross_attention: 3 heads do not divide a width of 8",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(layer(s, {.width = 8, .heads = 4, .groups = 3}),
                         "cross_attention: 4 query heads cannot share 3 key heads evenly", ht::argument_error);
    CHECK_THROWS_AS(layer(s, {.width = -8, .heads = 2}), ht::shape_error);
    CHECK(s.entries().empty());
}

}  // namespace nn_cross_attention_tests
