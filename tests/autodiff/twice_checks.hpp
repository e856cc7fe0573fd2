// SPDX-License-Identifier: MIT
/// \file
/// Second derivatives of every operation that a double-backward tape supports, on any device.
#pragma once

#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/kernel/attention/reference.hpp>
#include <halftone/kernel/cross_entropy/reference.hpp>
#include <halftone/kernel/norm/reference.hpp>
#include <halftone/kernel/softmax/reference.hpp>
#include <halftone/nn/gpt.hpp>

#include "autodiff/second_order.hpp"

namespace twice_checks {

namespace ht = halftone;
using second_order::check;
using second_order::doubles;
using second_order::weigh;
using second_order::weighed;
using roles = ht::roles<float, float, float>;
using P = ht::full_fp32;

inline ht::view<double, 2> matrix(doubles& all, std::size_t first, ht::extent rows, ht::extent columns) {
    return {all.data() + first, {rows, columns}};
}

/// y = x weightᵀ + bias, weight (out, in).
inline doubles linear(const doubles& x, std::size_t in, const double* weight, const double* bias, std::size_t out) {
    doubles y;
    for (std::size_t r = 0; r < x.size() / in; ++r) {
        for (std::size_t o = 0; o < out; ++o) {
            double sum = bias == nullptr ? 0 : bias[o];
            for (std::size_t i = 0; i < in; ++i) sum += x[r * in + i] * weight[o * in + i];
            y.push_back(sum);
        }
    }
    return y;
}
inline double gelu(double x) { return x / (1 + std::exp(-x * (1.59576912160573 + 0.0713548162726009 * x * x))); }

template <class Device>
void check_maps(Device& device) {
    // Of one input; and with inputs that are one value, and one for each column.
    check(device, nullptr, {3, 5}, 15, [](auto& tape, const auto& x) {
        return weigh(tape, ht::map(tape, [](auto a) { return ht::gelu(a) + ht::tanh(a) * ht::exp(0.5f * a) - ht::silu(a) / (2.0f + ht::square(a)); }, x));
    }, [](doubles x) {
        for (double& a : x) a = gelu(a) + std::tanh(a) * std::exp(0.5 * a) - a / (1 + std::exp(-a)) / (2 + a * a);
        return weighed(x);
    });
    check(device, nullptr, {4, 3}, 12, [](auto& tape, const auto& x) {
        const auto total = ht::sum(tape, x);
        return weigh(tape,
                     ht::map(
                         tape, [](auto a, auto s) { return ht::sqrt(a) * ht::log(s) + ht::rsqrt(s) * a; }, x, total));
    }, [](doubles x) {
        double s = 0;
        for (const double a : x) s += a;
        for (double& a : x) a = std::sqrt(a) * std::log(s) + a / std::sqrt(s);
        return weighed(x);
    }, 0.5, 1.5);
}

/// An input of one value for each column.
template <class Device>
void check_columns(Device& device) {
    std::vector<float> column{0.5f, -0.75f, 1.25f, 0.25f};
    std::vector<float> in{0.5f, 1.5f, -0.25f, 0.75f, -1, 0.125f, 2, -0.5f, 1, 0.25f, -1.5f, 0.375f};
    ht::tape tape{device, ht::double_backward};
    const auto x = tape.leaf(ht::const_view<float, 2>(in.data(), {3, 4}));
    const auto b = tape.leaf(ht::const_view<float, 1>(column.data(), {4}));
    // The loss is the sum of (x b)^2: by b it is 2 b_j sum_i x_ij^2, and all sums here are exact.
    const auto loss = ht::sum(tape, ht::map(tape, [](auto p, auto q) { return ht::square(p * q); }, x, b));
    const auto grads = tape.gradients(loss, b);
    tape.backward(ht::sum(tape, ht::mul(tape, grads.of(b), grads.of(b))));
    std::vector<float> db(4), dx(12);
    device.memory().read(db.data(), tape.gradient(b).data(), 16);
    device.memory().read(dx.data(), tape.gradient(x).data(), 48);
    for (std::size_t j = 0; j < 4; ++j) {
        float squares = 0;
        for (std::size_t i = 0; i < 3; ++i) squares += in[4 * i + j] * in[4 * i + j];
        CHECK(db[j] == 8 * column[j] * squares * squares);
        for (std::size_t i = 0; i < 3; ++i)
            CHECK(dx[4 * i + j] == 16 * column[j] * column[j] * squares * in[4 * i + j]);
    }
}

template <class Device>
void check_reductions(Device& device) {
    check(device, nullptr, {2, 5}, 10, [](auto& tape, const auto& x) {
        const auto y = ht::map(tape, [](auto a) { return ht::tanh(a); }, x);
        const auto loss = ht::add(tape, ht::mean_squared_error(tape, y, x), ht::norm(tape, y));
        return ht::map(
            tape, [](auto a, auto b) { return a * b; }, loss,
            ht::mean(tape, ht::map(
                               tape, [](auto a) { return ht::exp(a); }, x)));
    }, [](const doubles& x) {
        double error = 0, squares = 0, mean = 0;
        for (const double a : x) {
            const double y = std::tanh(a);
            error += (y - a) * (y - a) / static_cast<double>(x.size()), squares += y * y,
                mean += std::exp(a) / static_cast<double>(x.size());
        }
        return (error + std::sqrt(squares)) * mean;
    });
}

template <class Device>
void check_softmax(Device& device) {
    check(
        device, nullptr, {3, 5}, 15, [](auto& tape, const auto& x) { return weigh(tape, ht::softmax(tape, x, 1.5f)); },
        [](doubles x) {
            ht::reference::softmax(matrix(x, 0, 3, 5), 1.5, matrix(x, 0, 3, 5));
            return weighed(x);
        });
    check(
        device, nullptr, {3, 5}, 15, [](auto& tape, const auto& x) { return weigh(tape, ht::log_softmax(tape, x)); },
        [](const doubles& x) {
            doubles in = x, y(x.size());
            ht::reference::log_softmax(matrix(in, 0, 3, 5), 1.0, matrix(y, 0, 3, 5));
            return weighed(y);
        });
}

template <class Device>
void check_norms(Device& device) {
    ht::store parameters(device.memory());
    ht::nn::layer_norm<P> norm(parameters, 5);
    parameters.commit(1);
    support::write_masters(parameters, 0, {1.0f, 0.5f, -0.75f, 1.25f, 0.875f});
    support::write_masters(parameters, 1, {0.25f, -0.5f, 0, 0.75f, 1});
    check(
        device, &parameters, {3, 5}, 15, [&](auto& tape, const auto& x) { return weigh(tape, norm(tape, x)); },
        [](const doubles& at) {
            doubles all = at, y(15), rows(6);
            ht::reference::layer_norm(matrix(all, 0, 3, 5), ht::view<double, 1>(&all[15], {5}),
                                      ht::view<double, 1>(&all[20], {5}), 1e-5f, matrix(y, 0, 3, 5),
                                      ht::view<double, 1>(&rows[0], {3}), ht::view<double, 1>(&rows[3], {3}));
            return weighed(y);
        });
    ht::store others(device.memory());
    ht::nn::rms_norm<P> rms(others, 5);
    others.commit(1);
    support::write_masters(others, 0, {1.0f, 0.5f, -0.75f, 1.25f, 0.875f});
    check(
        device, &others, {3, 5}, 15, [&](auto& tape, const auto& x) { return weigh(tape, rms(tape, x)); },
        [](const doubles& at) {
            doubles all = at, y(15), rows(3);
            ht::reference::rms_norm(matrix(all, 0, 3, 5), ht::view<double, 1>(&all[15], {5}), 1e-6f, matrix(y, 0, 3, 5),
                                    ht::view<double, 1>(&rows[0], {3}));
            return weighed(y);
        });
}

template <class Device>
void check_linear(Device& device) {
    ht::store parameters(device.memory());
    ht::nn::linear<P> layer(parameters, 4, 4);
    parameters.commit(1);
    check(
        device, &parameters, {3, 4}, 12,
        [&](auto& tape, const auto& x) { return weigh(tape, ht::tanh(tape, layer(tape, x, x))); },
        [](const doubles& all) {
            doubles y = linear(doubles(all.begin(), all.begin() + 12), 4, &all[12], &all[28], 4);
            for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::tanh(y[i] + all[i]);
            return weighed(y);
        });
    ht::store others(device.memory());
    ht::nn::mlp<P> mlp(others, 3, 5, {.deviation = 0.5f}, {.deviation = 0.5f});
    others.commit(1);
    check(
        device, &others, {2, 3}, 10, [&](auto& tape, const auto& x) { return weigh(tape, mlp(tape, x, x)); },
        [](const doubles& all) {
            doubles hidden = linear(doubles(all.begin(), all.begin() + 6), 3, &all[6], &all[21], 5);
            for (double& h : hidden) h = gelu(h);
            doubles y = linear(hidden, 5, &all[26], &all[41], 3);
            for (std::size_t i = 0; i < y.size(); ++i) y[i] += all[i];
            return weighed(y);
        });
}

template <class Device>
void check_embedding(Device& device) {
    ht::store parameters(device.memory());
    ht::nn::embedding<P> layer(parameters, 4, 3, 2, {.deviation = 0.5f});  // a context of 3, of which 2 are used
    parameters.commit(1);
    static const std::int32_t tokens[] = {3, 1, 1, 0};
    check(device, &parameters, {1, 1}, 4, [&](auto& tape, const auto& x) {
        const auto y = layer(tape, ht::const_view<std::int32_t, 2>(tokens, {2, 2}));
        return weigh(tape, ht::map(tape, [](auto a, auto s) { return ht::tanh(a) * s; }, y, ht::sum(tape, x)));
    }, [](const doubles& all) {
        doubles y;
        for (std::size_t r = 0; r < 4; ++r) {
            for (std::size_t j = 0; j < 2; ++j)
                y.push_back(std::tanh(all[1 + 2 * static_cast<std::size_t>(tokens[r]) + j] + all[9 + 2 * (r % 2) + j]) *
                            all[0]);
        }
        return weighed(y);
    }, 0.5, 1);
}

template <class Device>
void check_cross_entropy(Device& device) {
    static const std::int32_t targets[] = {2, -100, 0, 4};
    const ht::const_view<std::int32_t, 1> ids(targets, {4});
    const auto mean = [](doubles logits) {
        doubles losses(4);
        return ht::reference::cross_entropy(matrix(logits, 0, 4, 5), ht::const_view<std::int32_t, 1>(targets, {4}),
                                            -100, ht::view<double, 1>(losses.data(), {4}));
    };
    check(
        device, nullptr, {4, 5}, 20, [&](auto& tape, const auto& x) { return ht::cross_entropy(tape, x, ids); }, mean);
    // The weight of two products, one of them inside the loss.
    ht::store parameters(device.memory());
    ht::nn::linear<P> layer(parameters, 5, 5);
    parameters.commit(1);
    check(
        device, &parameters, {4, 5}, 20,
        [&](auto& tape, const auto& x) {
            return ht::linear_cross_entropy<roles>(tape, ht::linear<roles>(tape, x, layer.weight, layer.bias),
                                                   layer.weight, ids);
        },
        [&](const doubles& all) {
            const doubles y = linear(doubles(all.begin(), all.begin() + 20), 5, &all[20], &all[45], 5);
            return mean(linear(y, 5, &all[20], nullptr, 5));
        });
}

template <class Device>
void check_attention(Device& device) {
    // Two texts of two tokens, two heads of one number.
    check(
        device, nullptr, {4, 6}, 24,
        [](auto& tape, const auto& x) {
            return weigh(tape, ht::self_attention<roles>(tape, ht::detail::reshaped(x, ht::shape<3>{2, 2, 6}), 2,
                                                         {.mask = ht::attention_mask::causal}));
        },
        [](const doubles& at) {
            doubles all = at, o(8), sums(8);
            const ht::shape<3> s{2, 2, 6};
            ht::reference::attention(
                ht::detail::slice_of_qkv(all.data(), s, 2, 0), ht::detail::slice_of_qkv(all.data(), s, 2, 1),
                ht::detail::slice_of_qkv(all.data(), s, 2, 2), ht::view<double, 4>(o.data(), {2, 2, 2, 1}),
                ht::view<double, 3>(sums.data(), {2, 2, 2}), {.mask = ht::attention_mask::causal});
            return weighed(o);
        });
    // Two heads that share their keys; packed sequences, of which the second has no keys.
    static const std::int32_t queries[] = {0, 3, 4}, keys[] = {0, 8, 8};
    static const ht::packed_sequences packed{ht::const_view<std::int32_t, 1>(queries, {3}),
                                             ht::const_view<std::int32_t, 1>(keys, {3}), 3, 8};
    check(device, nullptr, {2, 4}, 16, [](auto& tape, const auto& x) {
        const auto k = ht::detail::reshaped(x, ht::shape<4>{1, 8, 1, 1});
        return weigh(tape, ht::attention<roles>(tape, ht::detail::reshaped(x, ht::shape<4>{1, 4, 2, 1}), k,
                                                ht::tanh(tape, k), {.scale = 0.75f}, packed));
    }, [](const doubles& at) {
        doubles k = at, v = at, o(8), sums(8);
        for (double& a : v) a = std::tanh(a);
        const auto as_keys = [](doubles& d) { return ht::view<double, 4>(d.data(), {1, 8, 1, 1}); };
        ht::reference::attention(ht::view<double, 4>(k.data(), {1, 4, 2, 1}), as_keys(k), as_keys(v),
                                 ht::view<double, 4>(o.data(), {1, 4, 2, 1}),
                                 ht::view<double, 3>(sums.data(), {1, 2, 4}), {.scale = 0.75f}, packed);
        return weighed(o);
    });
}

}  // namespace twice_checks
