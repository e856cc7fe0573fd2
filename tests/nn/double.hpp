// SPDX-License-Identifier: MIT
/// \file
/// A whole model in double: every layer's gradients compared with differences of the loss.
#pragma once

#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/matmul.hpp>
#include <halftone/nn/gpt.hpp>
#include <halftone/nn/model.hpp>
#include <halftone/observe/check_gradients.hpp>

namespace double_nn {

namespace ht = halftone;

/// `every`-th elements of a GPT's parameters; all kinds of layers that it has.
template <class Device>
void gpt_gradients(Device& device, ht::extent every) {
    ht::nn::gpt<ht::full_fp64> model{device, {.vocabulary = 7, .context = 4, .layers = 2, .heads = 2, .width = 8}};
    const std::vector<std::int32_t> tokens{1, 2, 3, 1, 5, 6, 0}, targets{2, 3, 1, 5, 6, -100, 3};
    struct {
        ht::const_view<std::int32_t, 2> tokens, targets;
    } const batch{{tokens.data(), {2, 3}}, {targets.data(), {2, 3}}};
    // Ten roundings of a loss of about 2 in each of its two values; floats would be off by a million times as much.
    constexpr double eps = 1e-6, atol = 2 * 10 * 2 * ht::unit_roundoff<double> / (2 * eps);
    const auto report = ht::check_gradients(device, {.eps = eps, .atol = atol, .rtol = 1e-9, .every = every}, model,
                                            [&](auto& tape) { return model.loss(tape, batch); });
    CHECK_MESSAGE(report.agrees(), report.text());
    CHECK(report.checked > 1500 / every);
    CHECK(report.backward != 0);
}

/// Layers that a GPT does not have, with an input; wrong gradients are named by the parameter's path.
template <class P>
struct small_net : ht::nn::model {
    using policy = P;
    ht::nn::rms_norm<ht::at<P, "norm">> norm;
    ht::nn::linear<ht::at<P, "fc">> fc;

    template <class Device>
    explicit small_net(Device& device) : model(device), norm(parameters(), 5), fc(parameters(), 5, 3) {
        commit(*this);
    }
    auto operator()(auto& ctx, const auto& x) const { return fc(ctx, norm(ctx, x)); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.norm, self.fc); }
};

template <class Device>
void net_gradients(Device& device) {
    small_net<ht::full_fp64> net{device};
    const std::vector<double> x{0.3, -1.2, 0.7, 2.1, -0.4, 1.1, 0.2, -0.9, 0.6, 1.7};
    const ht::gradient_check_options sharp{.atol = 1e-9, .rtol = 1e-9};
    const auto input = ht::to_device(device, ht::const_view<double, 2>(x.data(), {2, 5}));
    const auto output = [&](auto& tape) { return net(tape, tape.constant(as_const(as_view(input)))); };
    const auto report = ht::check_gradients(device, sharp, net, output);
    CHECK_MESSAGE(report.agrees(), report.text());
    CHECK(report.checked == 5 + 15 + 3);
    small_net<ht::full_fp64> frozen{device};
    frozen.parameters().freeze("*");
    const auto of_input = ht::check_gradients(
        device, sharp, [&](auto& tape, auto v) { return frozen(tape, v); },
        ht::const_view<double, 2>(x.data(), {2, 5}));
    CHECK_MESSAGE(of_input.agrees(), of_input.text());
    CHECK(of_input.checked == 10);

    // Adds the bias twice but its gradient once.
    const auto wrong = ht::check_gradients(device, net, [&](auto& tape) {
        const auto bias = ht::as_variable(tape, net.fc.bias);
        return ht::add(tape, output(tape), ht::detach(tape, bias));
    });
    CHECK(wrong.disagree == 3);
    CHECK(wrong.input == "fc.bias");
    CHECK(wrong.text().find("check_gradients: fc.bias, element ") == 0);
}

}  // namespace double_nn
