// SPDX-License-Identifier: MIT
/// \file
/// The precision of backward products, apart from that of the forward one: the roles input_grad and weight_grad in
/// every layer that has such products.
#include <string>
#include <vector>

#include "nn/layers.hpp"
#include "support/gradient_sink.hpp"

namespace backward_roles {
namespace {

namespace ht = halftone;
using ht::bfloat16;
using nn_test::alone;
using nn_test::input;

using narrow_input = ht::with_input_grad<ht::full_fp32, bfloat16>;
using narrow_weight = ht::with_weight_grad<ht::full_fp32, bfloat16>;
using wide_weight = ht::with_weight_grad<ht::amp_bf16, float>;

using tape = ht::tape<ht::cpu>;
template <class P>
using roles_of = ht::layer_roles<P, ht::op::linear, tape>;
static_assert(std::is_same_v<roles_of<ht::amp_bf16>::input_grad, bfloat16> &&
              std::is_same_v<roles_of<ht::amp_bf16>::weight_grad, bfloat16>);
static_assert(
    std::is_same_v<roles_of<ht::with_grad<ht::amp_bf16, float>>::input_grad, float>);  // derived: the wider of the two
static_assert(std::is_same_v<roles_of<wide_weight>::input_grad, bfloat16> &&
              std::is_same_v<roles_of<wide_weight>::weight_grad, float>);
static_assert(std::is_same_v<roles_of<narrow_weight>::compute, float> &&
              std::is_same_v<roles_of<narrow_weight>::weight_grad, bfloat16>);
static_assert(ht::needs_scaling<ht::with_weight_grad<ht::full_fp32, ht::float16>> && !ht::needs_scaling<narrow_weight>);

/// A float that bfloat16 rounds to 1; its square is exact, too.
constexpr float fine = 1.00390625f;  // 1 + 2^-8

/// The gradients of a linear layer's input and weight whose operands are all powers of two times `fine`: {dx, dw}, so
/// far as `fine` is told from 1 in them.
template <class P>
std::vector<std::vector<double>> linear_gradients() {
    const std::vector<float> x{1, 2, -1, 4, 1, 2}, w{2, -1, 1, 1, 4, -2}, dy{1, -2, 2, 1};  // (2, 3), (2, 3), (2, 2)
    const auto times = [](std::vector<float> v) {
        for (float& a : v) a *= fine;
        return v;
    };
    alone<ht::nn::linear<P>> f(3, 2);
    support::set(f.layer.weight, times(w));
    const std::vector<float> xs = times(x), gs = times(dy);
    ht::tape t{f.device};
    const auto v = t.leaf(ht::view<const float, 2>(xs.data(), {2, 3}));
    const auto y = f.layer(t, v);
    support::gradient_sink sink(f.parameters);
    const ht::const_view<float, 2> weights(gs.data(), {2, 2});
    t.backward(ht::sum<float>(t, ht::mul(t, y, t.constant(weights))), sink);
    return {support::doubles(t.gradient(v)), sink.of(f.layer.weight)};
}

TEST_CASE("input_grad and weight_grad: each product of a linear layer reads its operands in its own type") {
    // dy w and dyᵀ x, by hand, with factors of 1.
    const std::vector<double> dx{0, -9, 5, 5, 2, 0}, dw{9, 4, 3, 2, -3, 4};
    const auto times = [](std::vector<double> v, double factor) {
        for (double& a : v) a *= factor;
        return v;
    };
    const double square = static_cast<double>(fine) * static_cast<double>(fine);
    CHECK(linear_gradients<ht::full_fp32>() == std::vector{times(dx, square), times(dw, square)});
    CHECK(linear_gradients<narrow_input>() == std::vector{dx, times(dw, square)});
    CHECK(linear_gradients<narrow_weight>() == std::vector{times(dx, square), dw});
    // The forward product reads bfloat16, and its result's gradient is one; x is read as it is.
    CHECK(linear_gradients<ht::amp_bf16>() == std::vector{dx, dw});
    CHECK(linear_gradients<wide_weight>() == std::vector{dx, times(dw, static_cast<double>(fine))});
}

/// The gradients of a layer's parameters, and of its input as the last.
template <class P, template <class> class Layer, class Call, class... Arguments>
std::vector<std::vector<float>> gradients(const Call& call, const Arguments&... arguments) {
    alone<Layer<P>> f(arguments...);
    const input<float, 3> x(ht::shape<3>{2, 3, 8});
    ht::tape t{f.device};
    const auto v = t.leaf(x.view);
    support::gradient_sink sink(f.parameters);
    t.backward(call(t, f.layer, v), sink);
    std::vector<std::vector<float>> all;
    for (std::size_t i = 0; i < f.parameters.entries().size(); ++i) all.push_back(sink.entry(i));
    const auto dx = t.gradient(v);
    all.emplace_back(dx.data(), dx.data() + dx.size());
    return all;
}

struct square_of_output {
    auto operator()(auto& t, const auto& layer, const auto& x) const {
        const auto y = layer(t, x, x);
        return ht::sum(t, ht::mul(t, y, y));
    }
};

/// Weights whose gradient is a product of two tensors that no input gradient has gone into are the same bits under
/// narrow_input; the gradient of the input is under narrow_weight. All others differ.
void compare(const std::vector<std::vector<float>>& base, const std::vector<std::vector<float>>& by_input,
             const std::vector<std::vector<float>>& by_weight, const std::vector<std::size_t>& last_weights,
             const std::vector<std::size_t>& weights) {
    CHECK(by_input.back() != base.back());
    CHECK(by_weight.back() == base.back());
    for (const std::size_t i : weights) {
        CAPTURE(i);
        bool is_last = false;
        for (const std::size_t l : last_weights) is_last = is_last || l == i;
        CHECK((by_input[i] == base[i]) == is_last);
        CHECK(by_weight[i] != base[i]);
    }
}

template <class P>
using mlp = ht::nn::mlp<P>;
template <class P>
using attention = ht::nn::attention<P>;
template <class P>
using linear = ht::nn::linear<P>;

TEST_CASE("input_grad and weight_grad in a perceptron") {
    const square_of_output loss;
    // up.weight, up.bias, down.weight, down.bias
    compare(gradients<ht::full_fp32, mlp>(loss, 8, 16), gradients<narrow_input, mlp>(loss, 8, 16),
            gradients<narrow_weight, mlp>(loss, 8, 16), {2}, {0, 2});
}

TEST_CASE("input_grad and weight_grad in attention's projections") {
    const square_of_output loss;
    // qkv.weight, qkv.bias, proj.weight, proj.bias
    compare(gradients<ht::full_fp32, attention>(loss, 8, 2), gradients<narrow_input, attention>(loss, 8, 2),
            gradients<narrow_weight, attention>(loss, 8, 2), {2}, {0, 2});
}

TEST_CASE("input_grad and weight_grad in a linear layer with cross-entropy") {
    const std::vector<std::int32_t> targets{0, 3, 1, 2, 4, 0};
    const auto run = [&]<class P>(P) {
        return gradients<P, linear>(
            [&](auto& t, const auto& layer, const auto& x) {
                return ht::linear_cross_entropy<ht::layer_roles<P, ht::op::linear_cross_entropy, tape>>(
                    t, x, layer.weight, ht::const_view<std::int32_t, 1>(targets.data(), {6}));
            },
            8, 5);
    };
    const auto base = run(ht::full_fp32{}), by_input = run(narrow_input{}), by_weight = run(narrow_weight{});
    CHECK(by_input.back() != base.back());
    CHECK(by_input[0] == base[0]);
    CHECK(by_weight.back() == base.back());
    CHECK(by_weight[0] != base[0]);
}

}  // namespace
}  // namespace backward_roles
