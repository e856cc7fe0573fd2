// SPDX-License-Identifier: MIT
/// \file
/// The linear layer: its parameters, and the types under policies and regions.
#include <cmath>

#include "nn/layers.hpp"

namespace nn_linear_tests {

namespace ht = halftone;
using nn_test::alone;
using nn_test::input;
using strings = std::vector<std::string>;

TEST_CASE("nn::linear: parameters and their initial values") {
    const alone<ht::nn::linear<ht::at<ht::amp_bf16, "fc">>> given(100, 30, ht::initial{.deviation = 0.25f}),
        standard(100, 30);
    CHECK(given.paths() == strings{"fc.weight", "fc.bias"});
    CHECK(given.parameters.size() == 3030);
    const auto deviation = [](const auto& layer) {
        double squares = 0;
        for (ht::extent i = 0; i < 3000; ++i)
            squares += std::pow(static_cast<double>(layer.weight.master().data()[i]), 2);
        return std::sqrt(squares / 3000);
    };
    // The standard deviation of 3000 draws is off by more than 5% with a probability below 1e-4.
    CHECK(deviation(given.layer) == doctest::Approx(0.25).epsilon(0.05));
    CHECK(deviation(standard.layer) == doctest::Approx(0.1).epsilon(0.05));  // 1 / sqrt(in)
    for (ht::extent i = 0; i < 30; ++i) CHECK(given.layer.bias.master()(i) == 0.0f);

    // Exactly zero, and the other kinds of `initial`.
    const alone<ht::nn::linear<ht::full_fp32>> zero(4, 3, ht::initial{}),
        even(100, 30, ht::initial{.bound = 0.5f}, ht::initial{.mean = -1});
    for (int i = 0; i < 12; ++i) CHECK(zero.layer.weight.master().data()[i] == 0.0f);
    for (ht::extent i = 0; i < 30; ++i) CHECK(even.layer.bias.master()(i) == -1.0f);
    CHECK(deviation(even.layer) == doctest::Approx(0.5 / std::sqrt(3)).epsilon(0.05));
    CHECK(alone<ht::nn::linear<ht::full_fp32>>(0, 3).parameters.size() == 3);
    ht::host_memory memory;
    ht::store s{memory};
    CHECK_THROWS_AS((ht::nn::linear<ht::full_fp32>(s, -1, 3)), ht::shape_error);
    CHECK_THROWS_AS((ht::nn::linear<ht::full_fp32>(s, 2, 3, {.deviation = -1})), ht::argument_error);
}

template <class P, class Y>
constexpr bool gives =
    std::is_same_v<decltype(std::declval<const ht::nn::linear<P>&>()(std::declval<ht::tape<ht::cpu>&>(),
                                                                     std::declval<const ht::variable<float, 3>&>())),
                   ht::variable<Y, 3>>;
static_assert(gives<ht::full_fp32, float>);
static_assert(gives<ht::amp_bf16, ht::bfloat16>);
static_assert(gives<ht::with_output<ht::amp_bf16, float>, float>);
static_assert(gives<ht::tf32, float> && gives<ht::inherit, float>);

TEST_CASE("nn::linear: a layer that inherits computes by the region's policy, one with its own policy does not") {
    const alone<ht::nn::linear<ht::inherit>> f(5, 7);
    const alone<ht::nn::linear<ht::amp_bf16>> bf16(5, 7);
    const input<float, 2> x(ht::shape<2>{3, 5});
    ht::cpu device{{.threads = 1}};
    ht::inference ctx{device};
    const auto v = ctx.constant(x.view);
    const auto bare = f.layer(ctx, v);
    static_assert(std::is_same_v<decltype(bare), const ht::variable<float, 2>>);
    const auto inside = f.layer(ht::autocast<ht::amp_bf16>(ctx), v);
    static_assert(std::is_same_v<decltype(inside), const ht::variable<ht::bfloat16, 2>>);
    // The same parameters from the same seed: one model stores fp32, the other has bf16 copies.
    CHECK(support::doubles(inside.view()) == support::doubles(bf16.layer(ctx, v).view()));
    CHECK(support::doubles(bf16.layer(ht::autocast<ht::full_fp32>(ctx), v).view()) == support::doubles(inside.view()));
    CHECK(support::doubles(bare.view()) != support::doubles(inside.view()));
    CHECK(f.parameters.groups()[0].copy_bytes == 0);
    // Under tf32 both read the same floats and return floats.
    const alone<ht::nn::linear<ht::tf32>> tf32(5, 7);
    const auto rounded = f.layer(ht::autocast<ht::tf32>(ctx), v);
    static_assert(std::is_same_v<decltype(rounded), const ht::variable<float, 2>>);
    CHECK(support::doubles(rounded.view()) == support::doubles(tf32.layer(ctx, v).view()));
    CHECK(support::doubles(rounded.view()) != support::doubles(bare.view()));
    CHECK(tf32.parameters.groups()[0].copy_bytes == 0);
}

TEST_CASE("nn::linear: with a residual") {
    const alone<ht::nn::linear<ht::full_fp32>> f(5, 5);
    const input<float, 2> x(ht::shape<2>{3, 5});
    ht::cpu device{{.threads = 1}};
    ht::inference ctx{device};
    const auto v = ctx.constant(x.view);
    const auto plain = f.layer(ctx, v), added = f.layer(ctx, v, v);
    for (int i = 0; i < 15; ++i)
        CHECK(added.view().data()[i] == plain.view().data()[i] + x.values[static_cast<std::size_t>(i)]);
}

template <class P, class Residual>
void residual_keeps_its_type() {
    alone<ht::nn::linear<P>> f(5, 5);
    // The same layer with float outputs, whose sums are not rounded.
    const alone<ht::nn::linear<ht::with_output<P, float>>> sums(5, 5);
    const input<float, 2> x(ht::shape<2>{3, 5});
    const input<Residual, 2> r(ht::shape<2>{3, 5}, 2);
    ht::cpu device{{.threads = 1}};
    ht::tape tape{device};
    const auto v = tape.leaf(x.view);
    const auto stream = tape.leaf(r.view);
    const auto y = f.layer(tape, v, stream);
    static_assert(std::is_same_v<decltype(y), const ht::variable<Residual, 2>>);
    const auto sum = sums.layer(tape, v);
    for (int i = 0; i < 15; ++i) {
        const float exact = sum.view().data()[i] + static_cast<float>(r.values[static_cast<std::size_t>(i)]);
        CHECK(static_cast<float>(y.view().data()[i]) == static_cast<float>(Residual(exact)));
    }
    support::gradient_sink sink(f.parameters);
    tape.backward(ht::sum(tape, y), sink);
    for (int i = 0; i < 15; ++i) CHECK(static_cast<float>(tape.gradient(stream).data()[i]) == 1.0f);
    CHECK(sink.of(f.layer.bias) == std::vector<double>(5, 3.0));
}

TEST_CASE("nn::linear: a layer that adds to a residual stream returns the stream's type, rounded once") {
    SUBCASE("an fp32 layer on a bf16 stream") { residual_keeps_its_type<ht::full_fp32, ht::bfloat16>(); }
    SUBCASE("a bf16 layer on an fp32 stream") { residual_keeps_its_type<ht::amp_bf16, float>(); }
    SUBCASE("a bf16 layer on an fp16 stream") { residual_keeps_its_type<ht::amp_bf16, ht::float16>(); }
}

}  // namespace nn_linear_tests
