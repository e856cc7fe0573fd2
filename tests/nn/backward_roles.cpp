// SPDX-License-Identifier: MIT
/// \file
/// The precision of backward products, independent of that of the forward product: the roles input_grad and weight_grad in
/// every layer that has such products.
#include <string>
#include <vector>

#include "nn/backward_bounds.hpp"
#include "nn/layers.hpp"
#include "support/gradient_sink.hpp"

namespace nn_backward_roles_tests {

namespace backward_roles {
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

/// A float that bfloat16 rounds to 1; its square is exact as a float.
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

/// Wider types than the forward pass has; the forward result is stored in fp32.
struct wide_backward : ht::with_output<ht::amp_bf16, float> {
    using input_grad = float;
    using weight_grad = float;
};

using floats = std::vector<std::vector<float>>;
constexpr int batch = 2, steps = 4, width = 8;

/// Values that every type here represents exactly, so that only computed values are rounded.
std::vector<float> inputs(support::random& data, ht::extent count, double deviation = 1) {
    const auto values = data.normals<bfloat16>(count, deviation);
    return {values.begin(), values.end()};
}
std::vector<float> layer_input() {
    support::random data(1);
    return inputs(data, batch * steps * width);
}

/// The gradients of a layer's parameters, and of its input as the last; no parameter is near zero.
template <class P, template <class> class Layer, class Call, class... Arguments>
floats gradients(const Call& call, floats& parameters, const Arguments&... arguments) {
    alone<Layer<P>> f(arguments...);
    parameters.clear();
    support::random data(5);
    for (std::size_t i = 0; i < f.parameters.entries().size(); ++i) {
        parameters.push_back(inputs(data, static_cast<ht::extent>(f.parameters.entries()[i].count), 0.125));
        support::write_masters(f.parameters, i, parameters.back());
    }
    f.parameters.refresh();
    const std::vector<float> x = layer_input();
    ht::tape t{f.device};
    const auto v = t.leaf(ht::view<const float, 3>(x.data(), {batch, steps, width}));
    support::gradient_sink sink(f.parameters);
    t.backward(call(t, f.layer, v), sink);
    floats all;
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

/// One layer under four policies: its gradients, and the bounds within which they agree with the exact ones.
struct results {
    floats base, by_input, by_weight, wide;
};
struct bounds {
    nn_test::tracked_matrices base, by_input, by_weight, wide;
};
template <template <class> class Layer, class Call, class... Arguments>
results run(const Call& call, floats& parameters, const Arguments&... arguments) {
    return {gradients<ht::full_fp32, Layer>(call, parameters, arguments...),
            gradients<narrow_input, Layer>(call, parameters, arguments...),
            gradients<narrow_weight, Layer>(call, parameters, arguments...),
            gradients<wide_backward, Layer>(call, parameters, arguments...)};
}
template <class Definition>
bounds define(const Definition& definition) {
    return {definition(nn_test::read_types<ht::full_fp32>{}), definition(nn_test::read_types<narrow_input>{}),
            definition(nn_test::read_types<narrow_weight>{}), definition(nn_test::read_types<wide_backward>{})};
}

/// The error of one gradient as a fraction of its bound.
support::comparison held_against(const std::vector<float>& got, const nn_test::tracked_matrix& want) {
    REQUIRE(got.size() == want.values.size());
    support::comparison c;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const support::tracked& w = want.values[i];
        c.expect(static_cast<double>(got[i]), w.value, support::rounded<float>(w.value, w.error));
    }
    return c;
}
constexpr std::size_t none = 99;
void within_bounds(const floats& got, const nn_test::tracked_matrices& want, std::size_t partly_zero) {
    for (std::size_t i = 0; i < want.size(); ++i) {
        CAPTURE(i);
        // The last bound is that of the input's gradient.
        const support::comparison c = held_against(i + 1 == want.size() ? got.back() : got[i], want[i]);
        CHECK_MESSAGE(c.within(), c);
        CHECK_MESSAGE((c.telling() || i == partly_zero), c);
    }
}
void within_bounds(const results& got, const bounds& want, std::size_t partly_zero = none) {
    within_bounds(got.base, want.base, partly_zero);
    within_bounds(got.by_input, want.by_input, partly_zero);
    within_bounds(got.by_weight, want.by_weight, partly_zero);
    within_bounds(got.wide, want.wide, partly_zero);
    // The narrower product is indeed computed in the narrow type: its error exceeds the bounds of fp32.
    CHECK_FALSE(held_against(got.by_input.back(), want.base.back()).within());
    CHECK_FALSE(held_against(got.by_weight[0], want.base[0]).within());
}

/// Weights whose gradient is a product of two tensors that no input gradient has gone into are the same bits under
/// narrow_input; the gradient of the input is under narrow_weight. All others differ.
void compare(const results& r, const std::vector<std::size_t>& last_weights, const std::vector<std::size_t>& weights) {
    CHECK(r.by_input.back() != r.base.back());
    CHECK(r.by_weight.back() == r.base.back());
    for (const std::size_t i : weights) {
        CAPTURE(i);
        bool is_last = false;
        for (const std::size_t l : last_weights) is_last = is_last || l == i;
        CHECK((r.by_input[i] == r.base[i]) == is_last);
        CHECK(r.by_weight[i] != r.base[i]);
    }
}

/// Floats as a matrix of that width.
nn_test::tracked_matrix matrix_of(const std::vector<float>& values, int columns) {
    return {static_cast<int>(values.size()) / columns, columns, values.data()};
}
nn_test::tracked_matrix input_matrix() { return matrix_of(layer_input(), width); }

template <class P>
using mlp = ht::nn::mlp<P>;
template <class P>
using attention = ht::nn::attention<P>;
template <class P>
using linear = ht::nn::linear<P>;

TEST_CASE("input_grad and weight_grad in a linear layer: within the bounds of their types") {
    floats p;
    const results r = run<linear>(square_of_output{}, p, width, width);
    compare(r, {0}, {0});
    within_bounds(
        r, define([&]<class Types>(Types) {
            return nn_test::linear_bounds<Types>(input_matrix(), {matrix_of(p[0], width), matrix_of(p[1], width)});
        }));
}

TEST_CASE("input_grad and weight_grad in a perceptron: within the bounds of their types") {
    constexpr int hidden = 16;
    floats p;  // up.weight, up.bias, down.weight, down.bias
    const results r = run<mlp>(square_of_output{}, p, width, hidden);
    compare(r, {2}, {0, 2});
    within_bounds(r, define([&]<class Types>(Types) {
                      return nn_test::mlp_bounds<Types>(
                          input_matrix(), {matrix_of(p[0], width), matrix_of(p[1], hidden), matrix_of(p[2], hidden),
                                           matrix_of(p[3], width)});
                  }));
}

TEST_CASE("input_grad and weight_grad in attention, its projections and its core: within the bounds of their types") {
    constexpr int heads = 2;
    floats p;  // qkv.weight, qkv.bias, proj.weight, proj.bias
    const results r = run<attention>(square_of_output{}, p, width, heads, ht::initial{}, ht::initial{},
                                     ht::attention_options{.mask = ht::attention_mask::full});
    compare(r, {2}, {0, 2});
    within_bounds(r, define([&]<class Types>(Types) {
                      return nn_test::attention_bounds<Types>(input_matrix(),
                                                              {matrix_of(p[0], width), matrix_of(p[1], 3 * width),
                                                               matrix_of(p[2], width), matrix_of(p[3], width)},
                                                              heads, batch);
                  }),
                  1);  // a bias that all keys share does not change the softmax: its gradient is zero
}

/// Attention's core alone, whose products read all operands in input_grad: {dqkv} as floats.
template <class InputGrad>
std::vector<float> core_gradient() {
    using roles = ht::roles<float, float, float, void, InputGrad, float>;
    ht::cpu device{{.threads = 1}};
    const input<float, 3> qkv(ht::shape<3>{1, steps, 3 * width}), dy(ht::shape<3>{1, steps, width}, 2);
    ht::tape t{device};
    const auto v = t.leaf(qkv.view);
    t.backward(ht::sum(t, ht::mul(t, ht::self_attention<roles>(t, v, 2), t.constant(dy.view))));
    const auto d = t.gradient(v);
    return {d.data(), d.data() + d.size()};
}

TEST_CASE("input_grad: attention's core uses it") {
    CHECK(core_gradient<float>() != core_gradient<bfloat16>());
    CHECK(core_gradient<ht::float16>() != core_gradient<bfloat16>());
}

TEST_CASE("input_grad and weight_grad in a linear layer with cross-entropy: within the bounds of their types") {
    const std::vector<std::int32_t> targets{0, 3, 1, 2, 4, 0, 1, 1};
    floats p;
    const auto loss = [&]<class P>(auto& t, const ht::nn::linear<P>& layer, const auto& x) {
        return ht::linear_cross_entropy<ht::layer_roles<P, ht::op::linear_cross_entropy, tape>>(
            t, x, layer.weight, ht::const_view<std::int32_t, 1>(targets.data(), {batch * steps}));
    };
    const results r = run<linear>(loss, p, width, 5);
    compare(r, {0}, {0});
    within_bounds(r, define([&]<class Types>(Types) {
                      return nn_test::linear_cross_entropy_bounds<Types>(input_matrix(), matrix_of(p[0], width),
                                                                         targets);
                  }));
}
}  // namespace backward_roles

}  // namespace nn_backward_roles_tests
