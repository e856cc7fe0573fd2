// SPDX-License-Identifier: MIT
/// \file
/// Row-wise operations: layer norm, RMS norm and softmax, forward and backward. Parameters and their gradients are
/// floats, as under autocast.
#pragma once

#include <halftone/kernel/norm/cpu.hpp>
#include <halftone/kernel/softmax/cpu.hpp>

#include <memory_bound/family.hpp>

namespace bench {

template <class T>
void norms(const memory_bound& b) {
    namespace ht = halftone;
    using ht::const_view, ht::view, ht::shape;
    for (const matrix_case& c : {matrix_case{8192, 768}, {1024, 768, true}, {2048, 4096}}) {
        const double one = c.size() * sizeof(T);
        const shape<2> s{c.rows, c.width};
        const json question = {{"rows", c.rows}, {"width", c.width}};
        const auto ask = [&](const char* op, const char* pass) {
            json q = question;
            q["op"] = op, q["pass"] = pass;
            return q;
        };
        b.run("layer_norm", c.text("forward"), 2 * one, [&](int n) {
            return [&, x = operands<T>(b.device, n, s.size()), y = operands<T>(b.device, n, s.size()), gain = operands<float>(b.device, 1, c.width),
                    bias = operands<float>(b.device, 1, c.width), mean = operands<float>(b.device, n, c.rows), rstd = operands<float>(b.device, n, c.rows)](int k) {
                ht::kernel::layer_norm<ht::cpu>::forward<T, float, T>(
                    b.device, {.x = const_view<T, 2>(x(k), s), .gain = const_view<float, 1>(gain(0), {c.width}), .bias = const_view<float, 1>(bias(0), {c.width}),
                               .y = view<T, 2>(y(k), s), .mean = view<float, 1>(mean(k), {c.rows}), .rstd = view<float, 1>(rstd(k), {c.rows})});
            };
        }, ask("layer_norm", "forward"));
        b.run("layer_norm", c.text("backward"), 3 * one, [&](int n) {
            return [&, x = operands<T>(b.device, n, s.size()), dy = operands<T>(b.device, n, s.size()), dx = operands<T>(b.device, n, s.size()),
                    gain = operands<float>(b.device, 1, c.width), mean = operands<float>(b.device, n, c.rows), rstd = operands<float>(b.device, n, c.rows),
                    dgain = operands<float>(b.device, 1, c.width), dbias = operands<float>(b.device, 1, c.width)](int k) {
                ht::kernel::layer_norm<ht::cpu>::backward<T, float, T, float>(
                    b.device, {.x = const_view<T, 2>(x(k), s), .gain = const_view<float, 1>(gain(0), {c.width}), .dy = const_view<T, 2>(dy(k), s),
                               .mean = const_view<float, 1>(mean(k), {c.rows}), .rstd = const_view<float, 1>(rstd(k), {c.rows}), .dx = view<T, 2>(dx(k), s),
                               .dgain = view<float, 1>(dgain(0), {c.width}), .dbias = view<float, 1>(dbias(0), {c.width}), .parameter_mode = ht::write_mode::overwrite});
            };
        }, ask("layer_norm", "backward"));
        b.run("rms_norm", c.text("forward"), 2 * one, [&](int n) {
            return [&, x = operands<T>(b.device, n, s.size()), y = operands<T>(b.device, n, s.size()), gain = operands<float>(b.device, 1, c.width),
                    rstd = operands<float>(b.device, n, c.rows)](int k) {
                ht::kernel::rms_norm<ht::cpu>::forward<T, float, T>(
                    b.device, {.x = const_view<T, 2>(x(k), s), .gain = const_view<float, 1>(gain(0), {c.width}), .y = view<T, 2>(y(k), s), .rstd = view<float, 1>(rstd(k), {c.rows})});
            };
        }, ask("rms_norm", "forward"));
        b.run("rms_norm", c.text("backward"), 3 * one, [&](int n) {
            return [&, x = operands<T>(b.device, n, s.size()), dy = operands<T>(b.device, n, s.size()), dx = operands<T>(b.device, n, s.size()),
                    gain = operands<float>(b.device, 1, c.width), rstd = operands<float>(b.device, n, c.rows), dgain = operands<float>(b.device, 1, c.width)](int k) {
                ht::kernel::rms_norm<ht::cpu>::backward<T, float, T, float>(
                    b.device, {.x = const_view<T, 2>(x(k), s), .gain = const_view<float, 1>(gain(0), {c.width}), .dy = const_view<T, 2>(dy(k), s),
                               .rstd = const_view<float, 1>(rstd(k), {c.rows}), .dx = view<T, 2>(dx(k), s), .dgain = view<float, 1>(dgain(0), {c.width}),
                               .parameter_mode = ht::write_mode::overwrite});
            };
        }, ask("rms_norm", "backward"));
    }
}

template <class T>
void softmaxes(const memory_bound& b) {
    namespace ht = halftone;
    using ht::const_view, ht::view, ht::shape;
    for (const matrix_case& c : {matrix_case{8192, 1024}, {1024, 512, true}, {32768, 64}}) {
        const double one = c.size() * sizeof(T);
        const shape<2> s{c.rows, c.width};
        const auto ask = [&](const char* pass) { return json{{"op", "softmax"}, {"pass", pass}, {"rows", c.rows}, {"width", c.width}}; };
        b.run("softmax", c.text("forward"), 2 * one, [&](int n) {
            return [&, x = operands<T>(b.device, n, s.size()), y = operands<T>(b.device, n, s.size())](int k) {
                ht::kernel::softmax<ht::cpu>::forward<T, T>(b.device, {.x = const_view<T, 2>(x(k), s), .y = view<T, 2>(y(k), s)});
            };
        }, ask("forward"));
        b.run("softmax", c.text("backward"), 3 * one, [&](int n) {
            return [&, y = operands<T>(b.device, n, s.size()), dy = operands<T>(b.device, n, s.size()), dx = operands<T>(b.device, n, s.size())](int k) {
                ht::kernel::softmax<ht::cpu>::backward<T, T>(
                    b.device, {.y = const_view<T, 2>(y(k), s), .dy = const_view<T, 2>(dy(k), s), .dx = view<T, 2>(dx(k), s)});
            };
        }, ask("backward"));
    }
}

}  // namespace bench
