// SPDX-License-Identifier: MIT
/// \file
/// Cross-entropy forward and backward.
#pragma once

#include <halftone/kernel/cross_entropy/cpu.hpp>

#include <memory_bound/family.hpp>
#include <support/random.hpp>

namespace bench {

template <class T>
void losses(const memory_bound& b) {
    namespace ht = halftone;
    using ht::const_view, ht::view, ht::shape;
    for (const matrix_case& c : {matrix_case{1024, 50304}, {8192, 256}, {1024, 256, true}}) {
        const double one = c.size() * sizeof(T);
        const shape<2> s{c.rows, c.width};
        const auto ask = [&](const char* pass) { return json{{"op", "cross_entropy"}, {"pass", pass}, {"rows", c.rows}, {"width", c.width}}; };
        b.run("cross_entropy", c.text("forward"), one, [&](int n) {
            return [&, x = operands<T>(b.device, n, s.size()), losses = operands<float>(b.device, 4, c.rows), targets = random_classes(c.rows, c.width, 7)](int k) {
                ht::kernel::cross_entropy<ht::cpu>::forward<T>(
                    b.device, {.logits = const_view<T, 2>(x(k), s), .targets = const_view<std::int32_t, 1>(targets.data(), {c.rows}),
                               .losses = view<float, 1>(losses(0), {c.rows}), .maximum = view<float, 1>(losses(1), {c.rows}),
                               .sum = view<float, 1>(losses(2), {c.rows}), .loss = view<float, 1>(losses(3), {1}),
                               .count = view<float, 1>(losses(3) + 1, {1})});
            };
        }, ask("forward"));
        b.run("cross_entropy", c.text("backward"), 2 * one, [&](int n) {
            return [&, x = operands<T>(b.device, n, s.size()), dx = operands<T>(b.device, n, s.size()), of_rows = operands<float>(b.device, 2, c.rows),
                    slope = 1.0f, targets = random_classes(c.rows, c.width, 7)](int k) {
                ht::kernel::cross_entropy<ht::cpu>::backward<T, T>(
                    b.device, {.logits = const_view<T, 2>(x(k), s), .targets = const_view<std::int32_t, 1>(targets.data(), {c.rows}),
                               .maximum = const_view<float, 1>(of_rows(0), {c.rows}),
                               .sum = const_view<float, 1>(of_rows(1), {c.rows}), .gradient = const_view<float, 1>(&slope, {1}),
                               .dlogits = view<T, 2>(dx(k), s)});
            };
        }, ask("backward"));
    }
}

}  // namespace bench
