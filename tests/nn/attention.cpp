// SPDX-License-Identifier: MIT
/// \file
/// The attention layer: its products and the operation between them, the mask, invalid sizes.
#include <halftone/observe/check_gradients.hpp>

#include "nn/layers.hpp"

namespace nn_attention_tests {

namespace ht = halftone;
using nn_test::alone;
using nn_test::input;
using strings = std::vector<std::string>;

TEST_CASE("nn::attention: two products around the operation") {
    const alone<ht::nn::attention<ht::at<ht::full_fp32, "attn">>> f(8, 2, ht::initial{.deviation = 0.5f});
    CHECK(f.paths() == strings{"attn.qkv.weight", "attn.qkv.bias", "attn.proj.weight", "attn.proj.bias"});
    CHECK(f.layer.qkv.weight.shape() == ht::shape<2>{24, 8});
    const input<float, 3> x(ht::shape<3>{2, 5, 8});
    ht::cpu device{{.threads = 1}};
    ht::inference ctx{device};
    const auto v = ctx.constant(x.view);
    using roles = ht::roles<float, float, float>;
    const auto o = ht::self_attention<roles>(ctx, f.layer.qkv(ctx, v), 2, {.mask = ht::attention_mask::causal});
    CHECK(support::doubles(f.layer(ctx, v, v).view()) == support::doubles(f.layer.proj(ctx, o, v).view()));
    CHECK(support::doubles(f.layer(ctx, v).view()) == support::doubles(f.layer.proj(ctx, o).view()));
}

TEST_CASE("nn::attention: a token does not see later ones, unless the mask is full") {
    const alone<ht::nn::attention<ht::amp_bf16>> causal(8, 2, ht::initial{.deviation = 0.5f},
                                                        ht::initial{.deviation = 0.5f});
    const alone<ht::nn::attention<ht::amp_bf16>> full(8, 2, ht::initial{.deviation = 0.5f},
                                                      ht::initial{.deviation = 0.5f},
                                                      ht::attention_options{.mask = ht::attention_mask::full});
    input<ht::bfloat16, 3> x(ht::shape<3>{1, 5, 8});
    ht::cpu device{{.threads = 1}};
    ht::inference ctx{device};
    const auto first_rows = [&](const auto& layer) {
        std::vector<double> y = support::doubles(layer(ctx, ctx.constant(x.view)).view());
        y.resize(4 * 8);
        return y;
    };
    const auto before = first_rows(causal.layer), before_full = first_rows(full.layer);
    for (std::size_t j = 4 * 8; j < 5 * 8; ++j) x.values[j] = ht::bfloat16(3.0f);  // the last time step
    CHECK(first_rows(causal.layer) == before);
    CHECK(first_rows(full.layer) != before_full);
}

TEST_CASE("nn::attention: invalid widths") {
    ht::host_memory memory;
    ht::store s(memory);
    using layer = ht::nn::attention<ht::full_fp32>;
    CHECK_THROWS_WITH_AS(layer(s, -8, 2), "attention: shape (3, -8) has a negative extent", ht::shape_error);
    CHECK_THROWS_WITH_AS(layer(s, ht::extent{1} << 62, ht::extent{1} << 56),
                         "attention: shape (3, 4611686018427387904) has more elements than fit in memory",
                         ht::shape_error);
    CHECK(s.entries().empty());
}

TEST_CASE("nn::attention: invalid heads") {
    ht::host_memory memory;
    ht::store s(memory);
    using layer = ht::nn::attention<ht::full_fp32>;
    CHECK_THROWS_WITH_AS(layer(s, 8, 3), "attention: 3 heads do not divide a width of 8", ht::argument_error);
    CHECK_THROWS_WITH_AS(layer(s, 8, 0), "attention: 0 heads do not divide a width of 8", ht::argument_error);
    const auto wide = [&](ht::attention_strategy strategy) {
        return layer(s, 1024, 2, {}, {}, ht::attention_options{.strategy = strategy});
    };
    CHECK_THROWS_WITH_AS(wide(ht::attention_strategy::flash),
                         "attention: 2 heads of a width of 1024 have 512 elements each; flash kernels take at most 256",
                         ht::argument_error);
    CHECK(s.entries().empty());
    CHECK_NOTHROW(wide(ht::attention_strategy::automatic));
}

TEST_CASE("nn::attention: packed sequences do not see each other") {
    const alone<ht::nn::attention<ht::at<ht::full_fp32, "attn">>> f(8, 2, ht::initial{.deviation = 0.5f},
                                                                    ht::initial{.deviation = 0.5f});
    const input<float, 3> x(ht::shape<3>{1, 7, 8});
    ht::cpu device{{.threads = 1}};
    ht::inference ctx{device};
    const std::vector<std::int32_t> offsets{0, 3, 7};
    const ht::const_view<std::int32_t, 1> where(offsets.data(), {3});
    const auto v = ctx.constant(x.view);
    std::vector<double> apart;
    for (int s = 0; s < 2; ++s) {
        const ht::extent length = offsets[s + 1] - offsets[s];
        const auto part = ctx.constant(ht::const_view<float, 3>(x.view.data() + offsets[s] * 8, {1, length, 8}));
        for (const double y : support::doubles(f.layer(ctx, part, part).view())) apart.push_back(y);
    }
    CHECK(support::doubles(f.layer(ctx, v, v, ht::packed_sequences::of(where, 4)).view()) == apart);
    CHECK(support::doubles(f.layer(ctx, v, v).view()) != apart);
    CHECK_THROWS_WITH_AS(
        f.layer(ctx, v, v, ht::packed_sequences::of(where, 3)),
        "attention: the offsets give sequence 1 4 queries; expected 0 to 3, the length stated of the longest",
        ht::shape_error);
}

TEST_CASE("nn::attention: functions of scores") {
    const alone<ht::nn::attention<ht::at<ht::full_fp32, "attn">>> f(8, 2, ht::initial{.deviation = 0.5f},
                                                                    ht::initial{.deviation = 0.5f});
    input<float, 3> x(ht::shape<3>{1, 9, 8});
    ht::cpu device{{.threads = 1}};
    ht::inference eval{device};
    ht::tape tape{device};
    const auto run = [&](auto& ctx, const auto&... functions) {
        const auto v = ctx.constant(x.view);
        return support::doubles(f.layer(ctx, v, v, functions...).view());
    };
    // A window as long as the sequence changes nothing except the rounding of the scores' factors.
    const std::vector<double> all = run(eval), windowed = run(eval, ht::sliding_window{9});
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(windowed[i] == doctest::Approx(all[i]).epsilon(1e-5));
    const std::vector<double> before = run(eval, ht::sliding_window{2});
    for (std::size_t j = 0; j < 8; ++j) x.values[j] += 1;  // the first time step, which is outside the third's window
    const std::vector<double> after = run(eval, ht::sliding_window{2});
    CHECK(std::equal(before.begin() + 16, before.end(), after.begin() + 16));
    CHECK(!std::equal(before.begin(), before.begin() + 16, after.begin()));
    CHECK(run(eval, ht::attention_dropout{0.5f}) == run(eval, ht::attention_dropout{0}));
    CHECK(run(tape, ht::attention_dropout{0.5f}) != run(tape, ht::attention_dropout{0}));
}

TEST_CASE("self_attention: gradients with functions of scores and dropout agree with finite differences") {
    ht::cpu device{{.threads = 1}};
    const input<double, 3> x(ht::shape<3>{1, 5, 6});
    const auto report = ht::check_gradients(
        device,
        [&](auto& ctx, const auto& qkv) {
            using roles = ht::roles<double, double, double>;
            return ht::self_attention<roles>(ctx, qkv, 1, {}, ht::soft_cap{1}, ht::attention_dropout{0.5f});
        },
        x.view);
    CHECK_MESSAGE(report.agrees(), report.text());
}

}  // namespace nn_attention_tests
