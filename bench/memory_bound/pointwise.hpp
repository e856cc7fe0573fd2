// SPDX-License-Identifier: MIT
/// \file
/// Maps: gelu forward and backward, a residual's addition, a bias's gradient, dropout.
#pragma once

#include <halftone/kernel/column_sum/cpu.hpp>
#include <halftone/kernel/dropout/cpu.hpp>
#include <halftone/kernel/map/cpu.hpp>

#include <memory_bound/family.hpp>

namespace bench {

inline const matrix_case pointwise_cases[] = {{8192, 3072}, {512, 1024, true}};

template <class T>
void pointwise(const memory_bound& b) {
    namespace ht = halftone;
    using ht::const_view, ht::view;
    const auto gelu = [](auto x) { return ht::gelu(x); };
    for (const matrix_case& c : pointwise_cases) {
        const extent count = c.rows * c.width;
        const double one = c.size() * sizeof(T);
        const auto ask = [&](const char* op, const char* pass) { return json{{"op", op}, {"pass", pass}, {"rows", c.rows}, {"width", c.width}}; };
        b.run("gelu", c.text("forward"), 2 * one, [&](int n) {
            return [&, x = operands<T>(b.device, n, count), y = operands<T>(b.device, n, count)](int k) {
                ht::map(b.device, gelu, const_view<T, 1>(x(k), {count}), view<T, 1>(y(k), {count}));
            };
        }, ask("gelu", "forward"));
        b.run("gelu", c.text("backward"), 3 * one, [&](int n) {
            return [&, x = operands<T>(b.device, n, count), dy = operands<T>(b.device, n, count), dx = operands<T>(b.device, n, count)](int k) {
                ht::kernel::map<ht::cpu>::backward(b.device, ht::detail::as_pack(ht::trace<1>(gelu)), ht::make_pack(const_view<T, 1>(dy(k), {count})),
                                                   ht::make_pack(const_view<T, 1>(x(k), {count})),
                                                   ht::make_pack(ht::kernel::gradient{view<T, 1>(dx(k), {count}), ht::write_mode::overwrite}));
            };
        }, ask("gelu", "backward"));
        b.run("add", c.text("forward"), 3 * one, [&](int n) {
            return [&, x = operands<T>(b.device, n, count), y = operands<T>(b.device, n, count), z = operands<T>(b.device, n, count)](int k) {
                ht::map(b.device, [](auto p, auto q) { return p + q; }, const_view<T, 1>(x(k), {count}), const_view<T, 1>(y(k), {count}), view<T, 1>(z(k), {count}));
            };
        }, ask("add", "forward"));
    }
}

template <class T>
void column_sums(const memory_bound& b) {
    namespace ht = halftone;
    for (const matrix_case& c : pointwise_cases) {
        b.run("column_sum", c.text("forward"), c.size() * sizeof(T), [&](int n) {
            return [&, x = operands<T>(b.device, n, c.rows * c.width), sums = operands<float>(b.device, 1, c.width)](int k) {
                ht::kernel::column_sum<ht::cpu>::run(b.device, ht::const_view<T, 2>(x(k), {c.rows, c.width}), ht::view<float, 1>(sums(0), {c.width}));
            };
        }, {{"op", "column_sum"}, {"rows", c.rows}, {"width", c.width}});
    }
}

template <class T>
void dropouts(const memory_bound& b) {
    namespace ht = halftone;
    for (const matrix_case& c : pointwise_cases) {
        const extent count = c.rows * c.width;
        b.run("dropout", c.text("forward"), 2 * c.size() * sizeof(T), [&](int n) {
            return [&, x = operands<T>(b.device, n, count), y = operands<T>(b.device, n, count), record = ht::kernel::random_record{1, 2}](int k) {
                ht::kernel::dropout<ht::cpu>::run(b.device, ht::const_view<T, 1>(x(k), {count}), ht::const_view<T, 1>{}, ht::view<T, 1>(y(k), {count}),
                                                  ht::kernel::dropout_draw::of(&record, 3, 0.1f));
            };
        }, {{"op", "dropout"}, {"rows", c.rows}, {"width", c.width}});
    }
}

}  // namespace bench
