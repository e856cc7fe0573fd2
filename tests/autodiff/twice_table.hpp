// SPDX-License-Identifier: MIT
/// \file
/// The named operations that a double-backward tape supports, each compared with central differences in double, on any device;
/// function_checks.hpp has the functions of one variable.
/// twice_checks.hpp has those of layers, twice_conv2d.hpp convolutions; tests/compile_fail has operations that do not compile: twice_with_eight_bits,
/// twice_record_without_rule, twice_apply_with_a_kernel, opaque_has_no_derivative.
#pragma once

#include <numeric>

#include <halftone/autodiff/op/apply.hpp>
#include <halftone/autodiff/op/axis_reduction.hpp>
#include <halftone/autodiff/op/dropout.hpp>
#include <halftone/autodiff/op/gated.hpp>
#include <halftone/autodiff/op/rotary.hpp>
#include <halftone/kernel/rotary/reference.hpp>

#include "autodiff/twice_checks.hpp"

namespace twice_checks {

using second_order::definition_of;
using second_order::tape_on;
using matrix_variable = ht::variable<float, 2>;

/// An operation on a matrix, of one element each; a second operand is tanh of the first.
template <class Device>
struct pointwise_case {
    const char* name;
    std::function<matrix_variable(tape_on<Device>&, const matrix_variable&, const matrix_variable&)> run;
    std::function<double(double, double)> definition;
    double low = -1, high = 1;
};

template <class Device>
void check_pointwise(Device& device, std::initializer_list<pointwise_case<Device>> cases) {
    for (const auto& c : cases) {
        CAPTURE(std::string(c.name));
        check(
            device, nullptr, {2, 3}, 6,
            [&](auto& tape, const auto& x) { return weigh(tape, c.run(tape, x, ht::tanh(tape, x))); },
            [&](const doubles& x) {
                doubles y;
                for (const double a : x) y.push_back(c.definition(a, std::tanh(a)));
                return weighed(y);
            },
            c.low, c.high);
    }
}

template <class Device>
void check_arithmetic(Device& device) {
    check_pointwise<Device>(
        device,
        {{"add", [](auto& t, auto& x, auto& b) { return ht::add(t, x, b); }, [](double x, double b) { return x + b; }},
         {"sub", [](auto& t, auto& x, auto& b) { return ht::sub(t, x, b); }, [](double x, double b) { return x - b; }},
         {"mul", [](auto& t, auto& x, auto& b) { return ht::mul(t, x, b); }, [](double x, double b) { return x * b; }},
         {"div", [](auto& t, auto& x, auto& b) { return ht::div(t, b, x); }, [](double x, double b) { return b / x; },
          0.5, 1.5},
         {"pow", [](auto& t, auto& x, auto& b) { return ht::pow(t, x, b); },
          [](double x, double b) { return std::pow(x, b); }, 0.5, 1.5},
         {"atan2", [](auto& t, auto& x, auto& b) { return ht::atan2(t, b, ht::add(t, x, 0.25f)); },
          [](double x, double b) { return std::atan2(b, x + 0.25); }, 0.5, 1.5},
         {"addcmul", [](auto& t, auto& x, auto& b) { return ht::addcmul(t, x, b, x, 0.5f); },
          [](double x, double b) { return x + 0.5 * b * x; }},
         {"addcdiv", [](auto& t, auto& x, auto& b) { return ht::addcdiv(t, b, b, x, 0.5f); },
          [](double x, double b) { return b + 0.5 * b / x; }, 0.5, 1.5},
         {"add of a number", [](auto& t, auto& x, auto&) { return ht::add(t, x, 0.75f); },
          [](double x, double) { return x + 0.75; }},
         {"sub of a number", [](auto& t, auto& x, auto&) { return ht::sub(t, x, 0.75f); },
          [](double x, double) { return x - 0.75; }},
         {"mul by a number", [](auto& t, auto& x, auto&) { return ht::mul(t, x, 0.75f); },
          [](double x, double) { return x * 0.75; }},
         {"div by a number", [](auto& t, auto& x, auto&) { return ht::div(t, x, 0.75f); },
          [](double x, double) { return x / 0.75; }},
         {"pow by a number", [](auto& t, auto& x, auto&) { return ht::pow(t, x, 2.5f); },
          [](double x, double) { return std::pow(x, 2.5); }, 0.5, 1.5},
         {"leaky_relu", [](auto& t, auto& x, auto&) { return ht::leaky_relu(t, x, 0.25f); },
          [](double x, double) { return x > 0 ? x : 0.25 * x; }},
         {"prelu", [](auto& t, auto& x, auto& b) { return ht::prelu(t, x, b); },
          [](double x, double b) { return x > 0 ? x : b * x; }}});
}

/// A loss of x (2, 3) and tanh of it, or of another operation's result of x.
template <class Device>
struct loss_case {
    const char* name;
    std::function<ht::variable<float, 0>(tape_on<Device>&, const matrix_variable&, const matrix_variable&)> run;
    std::function<double(const doubles&, const doubles&)> definition;
    double low = -1, high = 1;
};

/// The mean over all elements.
template <class F>
auto mean_over(const F& f) {
    return [f](const doubles& x, const doubles& b) {
        double sum = 0;
        for (std::size_t i = 0; i < x.size(); ++i) sum += f(x[i], b[i]);
        return sum / static_cast<double>(x.size());
    };
}

template <class Device>
void check_losses(Device& device) {
    const auto huber = [](double delta, double slope) {
        return [=](double x, double b) {
            const double d = std::fabs(x - b);
            return slope * (d < delta ? d * d / 2 : delta * (d - delta / 2));
        };
    };
    const auto squared = mean_over([](double x, double) { return x * x; });
    const std::initializer_list<loss_case<Device>> cases = {
        {"sum", [](auto& t, auto& x, auto& b) { return ht::sum(t, ht::mul(t, x, b)); },
         [](const doubles& x, const doubles& b) { return std::inner_product(x.begin(), x.end(), b.begin(), 0.0); }},
        {"mean", [](auto& t, auto& x, auto& b) { return ht::mean(t, ht::mul(t, x, b)); },
         mean_over([](double x, double b) { return x * b; })},
        {"mean_squared_error", [](auto& t, auto& x, auto& b) { return ht::mean_squared_error(t, x, b); },
         mean_over([](double x, double b) { return (x - b) * (x - b); })},
        {"l1_loss", [](auto& t, auto& x, auto& b) { return ht::l1_loss(t, x, ht::mul(t, b, b)); },
         mean_over([](double x, double b) { return std::fabs(x - b * b); })},
        {"smooth_l1_loss", [](auto& t, auto& x, auto& b) { return ht::smooth_l1_loss(t, x, b, 0.0625f); },
         mean_over(huber(0.0625, 16))},
        {"huber_loss", [](auto& t, auto& x, auto& b) { return ht::huber_loss(t, x, b, 0.0625f); },
         mean_over(huber(0.0625, 1))},
        {"binary_cross_entropy_with_logits",
         [](auto& t, auto& x, auto& b) { return ht::binary_cross_entropy_with_logits(t, x, ht::mul(t, b, b)); },
         mean_over([](double x, double b) { return std::log1p(std::exp(x)) - x * b * b; })},
        {"binary_cross_entropy",
         [](auto& t, auto& x, auto& b) { return ht::binary_cross_entropy(t, x, ht::mul(t, b, b)); },
         mean_over([](double x, double b) { return -b * b * std::log(x) - (1 - b * b) * std::log1p(-x); }), 0.2, 0.8},
        {"dot", [](auto& t, auto& x, auto& b) { return ht::dot(t, x, b); },
         [](const doubles& x, const doubles& b) { return std::inner_product(x.begin(), x.end(), b.begin(), 0.0); }},
        {"norm", [](auto& t, auto& x, auto&) { return ht::norm(t, x); },
         [=](const doubles& x, const doubles& b) { return std::sqrt(6 * squared(x, b)); }},
        {"sum_of_squares", [](auto& t, auto& x, auto&) { return ht::sum_of_squares(t, x); },
         [=](const doubles& x, const doubles& b) { return 6 * squared(x, b); }},
    };
    for (const auto& c : cases) {
        CAPTURE(std::string(c.name));
        check(
            device, nullptr, {2, 3}, 6, [&](auto& tape, const auto& x) { return c.run(tape, x, ht::tanh(tape, x)); },
            [&](const doubles& x) {
                doubles b;
                for (const double a : x) b.push_back(std::tanh(a));
                return c.definition(x, b);
            },
            c.low, c.high);
    }
}

/// a (m, k) times b (k, n), row by row.
inline void multiply(const double* a, const double* b, std::size_t m, std::size_t k, std::size_t n, doubles& to) {
    for (std::size_t i = 0; i < m; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
            double sum = 0;
            for (std::size_t l = 0; l < k; ++l) sum += a[i * k + l] * b[l * n + j];
            to.push_back(sum);
        }
    }
}
inline doubles tanh_of(doubles x) {
    for (double& a : x) a = std::tanh(a);
    return x;
}

template <class Device>
void check_matmul(Device& device) {
    // Matrices; two batches of them; and two with one matrix, by an x of 12 numbers that is both factors.
    check(
        device, nullptr, {3, 4}, 12,
        [](auto& t, const auto& x) {
            return weigh(t, ht::matmul(t, x, ht::reshape(t, ht::tanh(t, x), ht::shape<2>{4, 3})));
        },
        [](const doubles& x) {
            doubles y;
            multiply(x.data(), tanh_of(x).data(), 3, 4, 3, y);
            return weighed(y);
        });
    check(
        device, nullptr, {2, 6}, 12,
        [](auto& t, const auto& x) {
            return weigh(t, ht::matmul(t, ht::reshape(t, x, ht::shape<3>{2, 2, 3}),
                                       ht::reshape(t, ht::tanh(t, x), ht::shape<3>{2, 3, 2})));
        },
        [](const doubles& x) {
            doubles y;
            const doubles b = tanh_of(x);
            for (std::size_t i = 0; i < 12; i += 6) multiply(&x[i], &b[i], 2, 3, 2, y);
            return weighed(y);
        });
    check(
        device, nullptr, {2, 6}, 12,
        [](auto& t, const auto& x) {
            return weigh(t, ht::matmul(t, ht::reshape(t, x, ht::shape<3>{2, 3, 2}), ht::tanh(t, x)));
        },
        [](const doubles& x) {
            doubles y;
            multiply(x.data(), tanh_of(x).data(), 6, 2, 6, y);
            return weighed(y);
        });
}

template <class Device>
void check_joins(Device& device) {
    // x occurs twice in each.
    check(
        device, nullptr, {2, 3}, 18,
        [](auto& t, const auto& x) { return weigh(t, ht::tanh(t, ht::cat(t, 1, x, ht::exp(t, x), x))); },
        [](const doubles& x) {
            doubles y;
            for (std::size_t r = 0; r < 6; r += 3) {
                for (int part = 0; part < 3; ++part) {
                    for (std::size_t j = 0; j < 3; ++j)
                        y.push_back(std::tanh(part == 1 ? std::exp(x[r + j]) : x[r + j]));
                }
            }
            return weighed(y);
        });
    check(
        device, nullptr, {2, 3}, 12,
        [](auto& t, const auto& x) { return weigh(t, ht::tanh(t, ht::stack(t, 2, ht::exp(t, x), x))); },
        [](const doubles& x) {
            doubles y;
            for (const double a : x) y.push_back(std::tanh(std::exp(a))), y.push_back(std::tanh(a));
            return weighed(y);
        });
    // A list, whose length is known at run time.
    check(
        device, nullptr, {2, 3}, 18,
        [](auto& t, const auto& x) {
            const std::vector<matrix_variable> list{ht::exp(t, x), x, ht::exp(t, x)};
            return weigh(t, ht::tanh(t, ht::cat(t, 0, list)));
        },
        [](const doubles& x) {
            doubles y;
            for (int part = 0; part < 3; ++part) {
                for (const double a : x) y.push_back(std::tanh(part == 1 ? a : std::exp(a)));
            }
            return weighed(y);
        });
}

/// Orders, parts and broadcasting of a matrix (2, 3), each nonlinear behind.
template <class Device>
void check_shapes(Device& device) {
    using ht::axes;
    const auto squares = [](const std::vector<std::size_t>& places) {
        return [places](const doubles& x) {
            doubles y;
            for (const std::size_t i : places) y.push_back(std::tanh(x[i]) * std::exp(x[i]));
            return weighed(y);
        };
    };
    const auto of = [](const auto& take) {
        return [take](auto& t, const auto& x) {
            return weigh(t, ht::mul(t, take(t, ht::tanh(t, x)), take(t, ht::exp(t, x))));
        };
    };
    check(device, nullptr, {2, 3}, 6, of([](auto& t, const auto& x) { return ht::transpose(t, x, axes<0, 1>); }),
          squares({0, 3, 1, 4, 2, 5}));
    check(device, nullptr, {2, 3}, 6, of([](auto& t, const auto& x) { return ht::flip(t, x, axes<1>); }),
          squares({2, 1, 0, 5, 4, 3}));
    check(device, nullptr, {2, 3}, 4, of([](auto& t, const auto& x) { return ht::slice(t, x, axes<1>, 0, 3, 2); }),
          squares({0, 2, 3, 5}));
    check(device, nullptr, {2, 3}, 3, of([](auto& t, const auto& x) { return ht::select(t, x, axes<0>, -1); }),
          squares({3, 4, 5}));
    check(device, nullptr, {2, 3}, 12, of([](auto& t, const auto& x) { return ht::expand(t, x, ht::shape<3>{2, -1, -1}); }),
          squares({0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}));
    check(device, nullptr, {2, 3}, 4, of([](auto& t, const auto& x) {
              return ht::split_with_sizes(t, x, axes<1>, std::array<ht::extent, 2>{1, 2})[1];
          }),
          squares({1, 2, 4, 5}));
    // A column of x together with all of x, and a row.
    check(
        device, nullptr, {2, 3}, 6,
        [](auto& t, const auto& x) {
            const auto y = ht::mul(t, ht::exp(t, x), ht::slice(t, ht::tanh(t, x), axes<1>, 1, 2));
            return weigh(t, ht::mul(t, y, ht::select(t, x, axes<0>, 1)));
        },
        [](const doubles& x) {
            doubles y;
            for (std::size_t i = 0; i < 6; ++i) y.push_back(std::exp(x[i]) * std::tanh(x[i / 3 * 3 + 1]) * x[3 + i % 3]);
            return weighed(y);
        });
    // x tanh(x)ᵀ, where neither is copied.
    check(
        device, nullptr, {2, 3}, 4,
        [](auto& t, const auto& x) { return weigh(t, ht::matmul(t, x, ht::transposed(ht::tanh(t, x)))); },
        [](const doubles& x) {
            doubles y;
            for (std::size_t i = 0; i < 2; ++i) {
                for (std::size_t j = 0; j < 2; ++j) {
                    double sum = 0;
                    for (std::size_t k = 0; k < 3; ++k) sum += x[3 * i + k] * std::tanh(x[3 * j + k]);
                    y.push_back(sum);
                }
            }
            return weighed(y);
        });
}

/// Parameters as variables, in the places of weights and elsewhere.
template <class Device>
void check_parameters_as_variables(Device& device) {
    ht::store parameters(device.memory());
    ht::nn::linear<P> layer(parameters, 3, 2, {.deviation = 0.5f});
    parameters.commit(1);
    support::write_masters(parameters, 1, {0.25f, -0.5f});
    check(
        device, &parameters, {2, 3}, 12,
        [&](auto& t, const auto& x) {
            const auto w = ht::as_variable(t, layer.weight);
            const auto b = ht::as_variable(t, layer.bias);
            const auto squares = ht::matmul(t, x, ht::reshape(t, ht::tanh(t, w), ht::shape<2>{3, 2}));
            return weigh(t, ht::mul(t, ht::mul(t, ht::linear(t, x, w, b), squares), b));
        },
        [](const doubles& all) {
            const doubles y = linear(doubles(all.begin(), all.begin() + 6), 3, &all[6], &all[12], 2);
            doubles squares, result;
            multiply(all.data(), tanh_of(doubles(all.begin() + 6, all.begin() + 12)).data(), 2, 3, 2, squares);
            for (std::size_t i = 0; i < 4; ++i) result.push_back(y[i] * squares[i] * all[12 + i % 2]);
            return weighed(result);
        });
}

/// What is detached is a constant in both passes, a part of the loss or a gradient. In small whole numbers all of it is
/// exact.
template <class Device>
void check_detach(Device& device) {
    const float in[] = {1, -2, 3};
    const auto slopes_at = [&](const auto& tape, const auto& x) {
        std::vector<float> dx(3);
        device.memory().read(dx.data(), tape.gradient(x).data(), sizeof in);
        return dx;
    };
    ht::tape tape{device, ht::double_backward};
    {
        // The sum of x^2 c, c = x^2 detached: the gradient is 2 x c, and that of its squares 8 x c^2.
        const auto x = tape.leaf(ht::const_view<float, 1>(in, {3}));
        const auto squares = ht::mul(tape, x, x);
        const auto loss = ht::sum(tape, ht::mul(tape, squares, ht::detach(tape, squares)));
        const auto grads = tape.gradients(loss, x);
        tape.backward(ht::sum_of_squares(tape, grads));
        const auto dx = slopes_at(tape, x);
        for (std::size_t i = 0; i < 3; ++i) CHECK(dx[i] == 8 * in[i] * in[i] * in[i] * in[i] * in[i]);
    }
    // The sum of x g, g = 3 x^2 the gradient of the sum of x^3, detached: the gradient is g.
    const auto x = tape.leaf(ht::const_view<float, 1>(in, {3}));
    const auto loss = ht::sum(tape, ht::mul(tape, x, ht::mul(tape, x, x)));
    const auto g = tape.gradients(loss, x).of(x);
    tape.backward(ht::sum(tape, ht::mul(tape, x, ht::detach(tape, g))));
    const auto dx = slopes_at(tape, x);
    for (std::size_t i = 0; i < 3; ++i) CHECK(dx[i] == 3 * in[i] * in[i]);
}

/// Weights that change while a tape holds a forward pass without its backward pass: the next loss has gradients with respect to
/// the new weights. With small whole numbers all results are exact.
template <class Device>
void check_changed_weights(Device& device) {
    ht::store parameters(device.memory());
    ht::nn::linear<ht::amp_bf16> layer(parameters, 3, 2);
    parameters.commit(1);
    const float in[] = {1, -2, 3};
    ht::tape tape{device, ht::double_backward};
    std::vector<ht::gradient_variables<Device>> all;
    for (const float weight : {1.0f, 2.0f}) {
        layer.weight.assign(std::vector<float>(6, weight));
        const auto x = tape.leaf(ht::const_view<float, 2>(in, {1, 3}));
        const auto y = layer(tape, x);
        // The loss is the sum of y^2, with two equal rows of weights: by x it is 4 y w.
        all.push_back(tape.gradients(ht::sum<float>(tape, ht::mul(tape, y, y)), x));
        float dx[3];
        device.memory().read(dx, all.back()[0].view().data(), sizeof dx);
        for (const float d : dx) CHECK(d == 4 * 2 * weight * weight);
    }
}

/// Reductions along axes of tanh x (2, 3), each as a matrix or a vector whose elements are weighted.
template <class Device>
void check_axis_reductions(Device& device) {
    using ht::axes;
    // f of the elements of each output, which are x's columns.
    const auto check_columns = [&](const char* name, const auto& run, const auto& f) {
        CAPTURE(std::string(name));
        check(
            device, nullptr, {2, 3}, 6,
            [&](auto& tape, const auto& x) { return weigh(tape, run(tape, ht::tanh(tape, x))); },
            [&](const doubles& x) {
                doubles y;
                for (std::size_t j = 0; j < 3; ++j) y.push_back(f(std::tanh(x[j]), std::tanh(x[3 + j])));
                return weighed(y);
            });
    };
    const auto var = [](double a, double b) { return (a - b) * (a - b) / 2; };
    const auto log_sum = [](double a, double b) { return std::log(std::exp(a) + std::exp(b)); };
    check_columns("sum", [](auto& t, auto y) { return ht::sum(t, ht::mul(t, y, y), axes<0>); },
                  [](double a, double b) { return a * a + b * b; });
    check_columns("mean", [](auto& t, auto y) { return ht::mean(t, ht::mul(t, y, y), axes<0>, ht::keepdim); },
                  [](double a, double b) { return (a * a + b * b) / 2; });
    check_columns("var", [](auto& t, auto y) { return ht::var(t, y, axes<0>); }, var);
    check_columns("std", [](auto& t, auto y) { return ht::std(t, y, axes<0>); },
                  [&](double a, double b) { return std::sqrt(var(a, b)); });
    check_columns("logsumexp", [](auto& t, auto y) { return ht::logsumexp(t, y, axes<0>); }, log_sum);
    check_columns("amax", [](auto& t, auto y) { return ht::amax(t, ht::mul(t, y, y), axes<0>); },
                  [](double a, double b) { return std::max(a * a, b * b); });
    const auto check_all = [&](const char* name, const auto& run, const auto& f) {
        CAPTURE(std::string(name));
        check(
            device, nullptr, {2, 3}, 6,
            [&](auto& tape, const auto& x) { return weigh(tape, run(tape, ht::tanh(tape, x))); },
            [&](const doubles& x) {
                doubles y(6);
                for (std::size_t j = 0; j < 3; ++j) f(std::tanh(x[j]), std::tanh(x[3 + j]), y[j], y[3 + j]);
                return weighed(y);
            });
    };
    check_all("cumsum", [](auto& t, auto y) { return ht::cumsum(t, ht::mul(t, y, y), axes<0>); },
              [](double a, double b, double& first, double& second) { first = a * a, second = a * a + b * b; });
    check_all("softmax", [](auto& t, auto y) { return ht::softmax(t, y, axes<0>); },
              [&](double a, double b, double& first, double& second) {
                  first = std::exp(a - log_sum(a, b)), second = std::exp(b - log_sum(a, b));
              });
    check_all("log_softmax", [](auto& t, auto y) { return ht::log_softmax(t, y, axes<0>); },
              [&](double a, double b, double& first, double& second) {
                  first = a - log_sum(a, b), second = b - log_sum(a, b);
              });
}

/// Dropout is linear; the mask is read off the result.
template <class Device>
void check_dropout(Device& device) {
    doubles kept(12);
    check(
        device, nullptr, {2, 6}, 12,
        [&](auto& t, const auto& x) {
            const auto y = ht::dropout(t, ht::exp(t, x), {.p = 0.5f}, x);
            std::vector<float> in(12), out(12);
            t.device().memory().read(in.data(), x.view().data(), 48);
            t.device().memory().read(out.data(), y.view().data(), 48);
            for (std::size_t i = 0; i < 12; ++i) kept[i] = in[i] == out[i] ? 0 : 2;
            CHECK(std::count(kept.begin(), kept.end(), 0.0) > 0);
            CHECK(std::count(kept.begin(), kept.end(), 2.0) > 0);
            return weigh(t, y);
        },
        [&](const doubles& x) {
            doubles y;
            for (std::size_t i = 0; i < 12; ++i) y.push_back(x[i] + kept[i] * std::exp(x[i]));
            return weighed(y);
        });
}

/// In whole numbers all of it is exact: the sum of the squares of x as bf16 has the gradient 2 x, and that twice its
/// weights.
template <class Device>
void check_casts(Device& device) {
    const float in[] = {1, -2, 3, 4, -5, 6}, weights[] = {3, 1, -2, 4, 5, -1};
    ht::tape tape{device, ht::double_backward};
    const auto x = tape.leaf(ht::const_view<float, 2>(in, {2, 3}));
    const auto narrow = ht::cast<ht::bfloat16>(tape, x);
    const auto grads = tape.gradients(ht::sum<float>(tape, ht::mul(tape, narrow, narrow)), x);
    const auto w = tape.constant(ht::const_view<float, 2>(weights, {2, 3}));
    tape.backward(ht::dot(tape, grads.of(x), w));
    float dx[6];
    device.memory().read(dx, tape.gradient(x).data(), sizeof dx);
    for (int i = 0; i < 6; ++i) CHECK(dx[i] == 2 * weights[i]);
}

/// A row's halves, one of which gates the other.
template <class Device>
void check_gates(Device& device) {
    const auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
    const auto each = [&](const auto& run, const auto& definition) {
        check(
            device, nullptr, {2, 6}, 12,
            [&](auto& tape, const auto& x) { return weigh(tape, run(tape, ht::add(tape, ht::mul(tape, x, x), x))); },
            [&](doubles x) {
                for (double& a : x) a = a * a + a;
                doubles y;
                for (std::size_t row = 0; row < 2; ++row) {
                    for (std::size_t i = 0; i < 3; ++i) y.push_back(definition(x[6 * row + i], x[6 * row + 3 + i]));
                }
                return weighed(y);
            });
    };
    each([](auto& t, const auto& x) { return ht::glu(t, x); }, [&](double a, double b) { return a * logistic(b); });
    each([](auto& t, const auto& x) { return ht::swiglu(t, x); }, [&](double a, double b) { return a * logistic(a) * b; });
    each([](auto& t, const auto& x) { return ht::geglu(t, x); }, [&](double a, double b) { return gelu(a) * b; });
}

/// Queries and keys of one head of four numbers turn, values do not; two heads of queries share one of keys and values.
template <class Device>
void check_rotary(Device& device) {
    const auto table = ht::rotary_table(device, 2, 4, {.theta = 10});
    std::vector<float> read(8);
    device.memory().read(read.data(), table.data(), 32);
    const ht::shape<4> heads{1, 2, 3, 4};
    check(
        device, nullptr, {2, 12}, 24,
        [&](auto& tape, const auto& x) {
            const auto y = ht::rotary(tape, ht::reshape(tape, ht::mul(tape, x, x), heads), table.const_view(), {.heads = 2});
            return weigh(tape, ht::reshape(tape, y, ht::shape<2>{2, 12}));
        },
        [&](doubles x) {
            for (double& a : x) a *= a;
            doubles y(24);
            ht::reference::rotary(ht::view<double, 4>(x.data(), heads), ht::const_view<float, 2>(read.data(), {2, 4}), {},
                                  ht::view<double, 4>(y.data(), heads), {.heads = 2});
            return weighed(y);
        });
    check(
        device, nullptr, {2, 8}, 16,
        [](auto& tape, const auto& x) {
            return weigh(tape, ht::self_attention<roles>(tape, ht::detail::reshaped(x, ht::shape<3>{1, 2, 8}),
                                                         ht::attention_heads{2, 1}, {.mask = ht::attention_mask::causal}));
        },
        [](const doubles& at) {
            doubles all = at, o(8), sums(8);
            const ht::shape<3> s{1, 2, 8};
            const ht::attention_heads shared{2, 1};
            ht::reference::attention(
                ht::detail::slice_of_qkv(all.data(), s, shared, 0), ht::detail::slice_of_qkv(all.data(), s, shared, 1),
                ht::detail::slice_of_qkv(all.data(), s, shared, 2), ht::view<double, 4>(o.data(), {1, 2, 2, 2}),
                ht::view<double, 3>(sums.data(), {1, 2, 2}), {.mask = ht::attention_mask::causal});
            return weighed(o);
        });
}

}  // namespace twice_checks
