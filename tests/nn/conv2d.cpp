// SPDX-License-Identifier: MIT
/// \file
/// The convolution layer: its parameters, their initial values, the types that policies give, its lines in the ledger, and a
/// shadow run through two of them.
#include <cmath>

#include <halftone/nn/conv2d.hpp>
#include <halftone/observe/shadow/shadow.hpp>
#include <halftone/policy/ledger.hpp>

#include "nn/layers.hpp"

namespace nn_conv2d_tests {

namespace ht = halftone;
using nn_test::alone;
using nn_test::input;
using strings = std::vector<std::string>;
using layer = ht::nn::conv2d<ht::at<ht::amp_bf16, "conv">>;

TEST_CASE("nn::conv2d: parameters and their initial values") {
    const ht::conv2d_options halves{.padding = {1, 1}, .groups = 2};
    const alone<layer> standard(16, 32, ht::shape<2>{3, 3}, halves);
    CHECK(standard.paths() == strings{"conv.weight", "conv.bias"});
    CHECK(standard.layer.weight.shape() == ht::shape<4>{32, 8, 3, 3});
    // Uniform up to 1 / sqrt(8 * 9): the largest of 2304 draws is beyond 99 in 100 of that with a chance above 1 - 1e-9.
    const double bound = 1 / std::sqrt(72.0);
    double largest = 0, squares = 0, of_bias = 0;
    for (ht::extent i = 0; i < 2304; ++i) {
        const auto w = static_cast<double>(standard.layer.weight.master().data()[i]);
        largest = std::max(largest, std::fabs(w)), squares += w * w;
    }
    for (ht::extent i = 0; i < 32; ++i)
        of_bias = std::max(of_bias, std::fabs(static_cast<double>(standard.layer.bias.master()(i))));
    CHECK((largest <= bound * 1.000001 && largest > 0.99 * bound));
    CHECK(std::sqrt(squares / 2304) == doctest::Approx(bound / std::sqrt(3.0)).epsilon(0.05));
    CHECK((of_bias <= bound * 1.000001 && of_bias > 0.5 * bound));

    const alone<ht::nn::conv2d_no_bias<ht::full_fp32>> plain(3, 4, ht::shape<2>{1, 1}, ht::conv2d_options{},
                                                             ht::initial{.mean = 2});
    CHECK(plain.parameters.size() == 12);
    for (int i = 0; i < 12; ++i) CHECK(plain.layer.weight.master().data()[i] == 2.0f);
    ht::host_memory memory;
    ht::store s{memory};
    CHECK_THROWS_WITH_AS((ht::nn::conv2d<ht::full_fp32>(s, 6, 4, {3, 3}, {.groups = 4})),
                         "nn::conv2d: 6 channels to 4 in 4 groups by a window of (3, 3); expected multiples of the "
                         "groups, and a window of 1 or more",
                         ht::argument_error);
    CHECK_THROWS_AS((ht::nn::conv2d<ht::full_fp32>(s, 6, 4, {3, 0})), ht::argument_error);
    CHECK_THROWS_AS((ht::nn::conv2d_no_bias<ht::full_fp32>(s, 6, 4, {3, 3}, {.groups = 0})), ht::argument_error);
}

template <class P, class Y>
constexpr bool gives =
    std::is_same_v<decltype(std::declval<const ht::nn::conv2d<P>&>()(std::declval<ht::tape<ht::cpu>&>(),
                                                                     std::declval<const ht::variable<float, 4>&>())),
                   ht::variable<Y, 4>>;
static_assert(gives<ht::full_fp32, float>);
static_assert(gives<ht::amp_bf16, ht::bfloat16>);
static_assert(gives<ht::with_output<ht::amp_bf16, float>, float>);
static_assert(gives<ht::inherit, float>);
static_assert(gives<ht::fp8_hybrid, ht::bfloat16>);

/// Two convolutions, with what a user writes between them.
template <class P>
struct small : ht::nn::model {
    using policy = P;
    ht::nn::conv2d_no_bias<ht::at<P, "first">> first;
    ht::nn::conv2d<ht::at<P, "second">> second;

    explicit small(auto& device)
        : model(device),
          first(parameters(), 3, 8, {3, 3}, {.stride = {2, 2}, .padding = {1, 1}}),
          second(parameters(), 8, 4, {3, 3}, {.padding = {1, 1}, .groups = 2}) {
        commit(*this, 5);
    }
    auto operator()(auto&& ctx, const auto& x) const { return second(ctx, ht::relu(ctx, first(ctx, x))); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.first, self.second); }
};

TEST_CASE("nn::conv2d: its lines in the ledger") {
    constexpr auto lines = ht::ledger<small<ht::amp_bf16>, const float>;
    REQUIRE(lines.size() == 5);
    CHECK(std::string(lines[0].path) == "first");
    CHECK(std::string(lines[0].op) == "conv2d");
    CHECK(std::string(lines[0].in) == "bfloat16");
    CHECK(lines[1].pass == ht::ledger_pass::weight_gradient);
    CHECK(lines[3].pass == ht::ledger_pass::input_gradient);
    // The images are floats: read as bfloat16 in both passes of the first layer.
    CHECK(ht::casts<small<ht::amp_bf16>, const float> == 2);
}

TEST_CASE("nn::conv2d: a shadow run reports nothing for a correct network, and finds stale weights") {
    ht::cpu device{{.threads = 2}};
    const input<float, 4> x(ht::shape<4>{2, 3, 9, 8});
    const std::vector<float> targets(2 * 4 * 5 * 4);
    const auto report_of = [&](float by) {
        small<ht::amp_bf16> model{device};
        small<ht::full_fp32> twin{device};
        const auto master = model.second.weight.master();
        for (ht::extent i = 0; i < master.size(); ++i) master.data()[i] *= by;
        return ht::shadow_run(device, model, twin, [&](auto& tape, const auto& m) {
            const auto y = m(tape, tape.constant(x.view));
            return ht::mean_squared_error(tape, y, ht::const_view<float, 4>(targets.data(), y.shape()));
        });
    };
    const auto sound = report_of(1);
    CHECK(sound.first() == nullptr);
    CHECK(sound.rows.size() >= 10);
    // The bounds must be tight enough to fail: that of the second layer's result is a few roundings.
    for (const ht::shadow_row& r : sound.rows) CHECK(r.bound <= 0.25 * (std::fabs(r.expected) + 1));
    const auto stale = report_of(1.02f);
    REQUIRE(stale.first() != nullptr);
    CHECK(stale.first()->parameter == "second.weight");
}

}  // namespace nn_conv2d_tests
