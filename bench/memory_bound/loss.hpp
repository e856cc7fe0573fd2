// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy forward and backward; the same behind a linear layer whose logits are not kept, counted in operations.
#pragma once

#include <halftone/kernel/cross_entropy/cpu.hpp>
#include <halftone/kernel/linear_cross_entropy/cpu.hpp>
#include <halftone/kernel/matmul/cpu.hpp>

#include <memory_bound/family.hpp>

namespace bench {

inline std::vector<std::int32_t> random_targets(extent rows, extent classes) {
    std::mt19937 engine(7);
    std::uniform_int_distribution<std::int32_t> any(0, static_cast<std::int32_t>(classes - 1));
    std::vector<std::int32_t> targets(static_cast<std::size_t>(rows));
    for (auto& t : targets) t = any(engine);
    return targets;
}

template <class T>
void losses(const memory_bound& b) {
    namespace ht = halftone;
    using ht::const_view, ht::view, ht::shape;
    for (const matrix_case& c : {matrix_case{1024, 50304}, {8192, 256}, {1024, 256, true}}) {
        const double one = c.size() * sizeof(T);
        const shape<2> s{c.rows, c.width};
        const auto ask = [&](const char* pass) { return json{{"op", "cross_entropy"}, {"pass", pass}, {"rows", c.rows}, {"width", c.width}}; };
        b.run("cross_entropy", c.text("forward"), one, [&](int n) {
            return [&, x = operands<T>(b.device, n, s.size()), losses = operands<float>(b.device, 3, c.rows), targets = random_targets(c.rows, c.width)](int k) {
                ht::kernel::cross_entropy<ht::cpu>::forward<T>(
                    b.device, {.logits = const_view<T, 2>(x(k), s), .targets = const_view<std::int32_t, 1>(targets.data(), {c.rows}),
                               .losses = view<float, 1>(losses(0), {c.rows}), .logsumexp = view<float, 1>(losses(1), {c.rows}),
                               .loss = view<float, 1>(losses(2), {1}), .count = view<float, 1>(losses(2) + 1, {1})});
            };
        }, ask("forward"));
        b.run("cross_entropy", c.text("backward"), 2 * one, [&](int n) {
            return [&, x = operands<T>(b.device, n, s.size()), dx = operands<T>(b.device, n, s.size()), logsumexp = operands<float>(b.device, 1, c.rows),
                    slope = 1.0f, targets = random_targets(c.rows, c.width)](int k) {
                ht::kernel::cross_entropy<ht::cpu>::backward<T, T>(
                    b.device, {.logits = const_view<T, 2>(x(k), s), .targets = const_view<std::int32_t, 1>(targets.data(), {c.rows}),
                               .logsumexp = const_view<float, 1>(logsumexp(0), {c.rows}), .gradient = const_view<float, 1>(&slope, {1}),
                               .dlogits = view<T, 2>(dx(k), s)});
            };
        }, ask("backward"));
    }
}

template <class T, class P>
void linear_losses(const memory_bound& b) {
    namespace ht = halftone;
    using ht::const_view, ht::view;
    using compute = typename P::compute;
    struct linear_case {
        extent rows, width, classes;
    };
    for (const auto& c : {linear_case{1024, 768, 50304}, {4096, 384, 256}}) {
        const double product = 2.0 * static_cast<double>(c.rows * c.width) * static_cast<double>(c.classes);
        const std::string shape = std::to_string(c.rows) + "x" + std::to_string(c.width) + "x" + std::to_string(c.classes);
        const auto make = [&](bool backward) {
            return [&, backward](int) {
                return [&, backward, x = operands<T>(b.device, 1, c.rows * c.width), w = operands<T>(b.device, 1, c.classes * c.width),
                        dx = operands<T>(b.device, 1, c.rows * c.width), dw = operands<float>(b.device, 1, c.classes * c.width),
                        rows = operands<float>(b.device, 3, c.rows), slope = 1.0f, targets = random_targets(c.rows, c.classes)](int) {
                    using loss = ht::kernel::linear_cross_entropy<ht::cpu>;
                    const const_view<T, 2> vx(x(0), {c.rows, c.width}), vw(w(0), {c.classes, c.width});
                    const ht::kernel::linear_cross_entropy_rows all{.targets = {targets.data(), {c.rows}}, .losses = {rows(0), {c.rows}},
                                                                    .logsumexp = {rows(1), {c.rows}}, .loss = {rows(2), {1}}, .count = {rows(2) + 1, {1}}};
                    loss::forward<compute, T>(b.device, vx, vw, all);
                    if (!backward) return;
                    loss::backward<compute, T, compute, compute>(b.device, vx, vw, all, const_view<float, 1>(&slope, {1}),
                                                                 ht::kernel::gradient_result<T>{view<T, 2>(dx(0), {c.rows, c.width})},
                                                                 ht::kernel::gradient_result<float>{view<float, 2>(dw(0), {c.classes, c.width})});
                };
            };
        };
        const auto ask = [&](const char* pass) {
            return json{{"op", "linear_cross_entropy"}, {"pass", pass}, {"rows", c.rows}, {"width", c.width}, {"classes", c.classes}};
        };
        b.run("linear_cross_entropy", shape + " forward", 1e12, make(false), ask("forward"), product);
        b.run("linear_cross_entropy", shape + " both", 1e12, make(true), ask("both"), 3 * product);
    }
}

}  // namespace bench
