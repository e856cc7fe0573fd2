// SPDX-License-Identifier: MIT
/// \file
/// Free operations on doubles, on any device: values and gradients compared with long double, within bounds in units of 2^-53,
/// which a single rounding to float would exceed a million times; gradients of all operations compared with differences.
#pragma once

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/autodiff/op/apply.hpp>
#include <halftone/autodiff/op/dropout.hpp>
#include <halftone/autodiff/op/elementwise.hpp>
#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/autodiff/op/join.hpp>
#include <halftone/autodiff/op/loss.hpp>
#include <halftone/autodiff/op/matmul.hpp>
#include <halftone/autodiff/op/softmax.hpp>
#include <halftone/observe/check_gradients.hpp>

#include "kernel/map/bounded.hpp"
#include "support/bounds.hpp"
#include "support/cubed.hpp"
#include "support/random.hpp"

namespace double_checks {

namespace ht = halftone;
using ht::bfloat16;
using support::bounded;

constexpr double u64 = ht::unit_roundoff<double>;
/// From a bound in roundings to float to one in roundings to double: bounds are sums of powers of the unit roundoff
/// with positive factors, so that they shrink at least as it does. A thousandth is for factors that `bounded` reads as
/// floats, and for long double's own roundings.
constexpr double to_u64 = 1.001 * u64 / support::unit;

/// All 53 bits are random.
inline double wide_uniform(support::random& data, double low, double high) {
    return data.uniform(low, high) + (high - low) * 0x1p-32 * data.uniform(0, 1);
}
template <int Rank>
ht::host_tensor<double, Rank> numbers(std::uint64_t seed, const ht::shape<Rank>& s, double low = -2, double high = 2) {
    support::random data(seed);
    ht::host_tensor<double, Rank> x(s);
    for (double& v : x) v = wide_uniform(data, low, high);
    return x;
}

template <class T, int Rank>
long double at(const ht::host_tensor<T, Rank>& x, ht::extent i) {
    return static_cast<long double>(x.data()[i]);
}

// The sum of terms and of their magnitudes.
struct long_sum {
    long double value = 0, magnitude = 0;
    void add(long double term) { value += term, magnitude += std::fabs(term); }
};

/// y = f(a, b, c), where b has one value for each column and c is one; and the gradients of the sum of w y.
template <class Device, class F>
void check_map(Device& device, const F& f, double low, double high) {
    const ht::shape<2> s{37, 3};
    const auto a = numbers(1, s, low, high), w = numbers(4, s);
    const auto b = numbers(2, ht::shape<1>{3}, low, high);
    const auto c = numbers(3, ht::shape<0>{}, low, high);
    ht::tape tape{device};
    const auto da = ht::to_device(device, a), dw = ht::to_device(device, w);
    const auto db = ht::to_device(device, b);
    const auto dc = ht::to_device(device, c);
    const auto va = tape.leaf(da.view());
    const auto vb = tape.leaf(db.view());
    const auto vc = tape.leaf(dc.view());
    const auto y = ht::map(tape, f, va, vb, vc);
    static_assert(std::is_same_v<typename decltype(y)::value_type, double>);
    const auto got = ht::to_host(device, y);
    tape.backward(ht::sum(tape, ht::mul(tape, y, tape.constant(dw.view()))));
    const auto ga = ht::to_host(device, tape.gradient(va));
    const auto gb = ht::to_host(device, tape.gradient(vb));
    const auto gc = ht::to_host(device, tape.gradient(vc));

    const auto e = ht::trace<3>(f);
    support::comparison values, slopes;
    long_sum columns[3], all;
    double column_errors[3] = {}, all_error = 0;
    for (ht::extent i = 0; i < s.size(); ++i) {
        const long double x[] = {at(a, i), at(b, i % 3), at(c, 0)};
        const bounded with_error[] = {a.data()[i], b.data()[i % 3], c.data()[0]};
        const auto error = [&](const auto& expression) {
            return to_u64 * ht::scalar::evaluate(expression, with_error).error;
        };
        values.expect(got.data()[i], static_cast<double>(ht::scalar::evaluate(e, x)), error(e));
        // One rounding for the product with dy.
        const auto slope = [&](const auto& d, double& bound) {
            const long double exact = ht::scalar::evaluate(d, x), weight = at(w, i);
            bound = std::fabs(w.data()[i]) * error(d) + 1.001 * u64 * static_cast<double>(std::fabs(exact * weight));
            return exact * weight;
        };
        double bound = 0;
        const long double of_a = slope(ht::derivative<0>(e), bound);
        slopes.expect(ga.data()[i], static_cast<double>(of_a), bound);
        columns[i % 3].add(slope(ht::derivative<1>(e), bound));
        column_errors[i % 3] += bound;
        all.add(slope(ht::derivative<2>(e), bound));
        all_error += bound;
    }
    const auto expect_sum = [&](double sum, const long_sum& want, double error, ht::extent terms) {
        const auto depth = static_cast<double>(ht::kernel::fp64::sum_depth(terms));
        slopes.expect(sum, static_cast<double>(want.value),
                      error + support::gamma(depth, u64) * (static_cast<double>(want.magnitude) + error));
    };
    for (int j = 0; j < 3; ++j) expect_sum(gb.data()[j], columns[j], column_errors[j], s[0]);
    expect_sum(gc.data()[0], all, all_error, s.size());
    CHECK_WITHIN(values);
    CHECK_WITHIN(slopes);
}

/// Every function of kernel/map, 0.1 and 1/3 as constants that no float holds.
template <class Device>
void maps(Device& device) {
    check_map(
        device,
        [](auto a, auto b, auto c) {
            return ht::exp(a) * b + ht::tanh(c * a) / (1 + ht::square(b)) - 0.1 * ht::sigmoid(a + b);
        },
        -2, 2);
    check_map(
        device,
        [](auto a, auto b, auto c) {
            return ht::log(a) * ht::sqrt(b) + ht::rsqrt(a) * c + ht::log2(b) * ht::log10(c) + ht::pow(a, 1.0 / 3) +
                   ht::pow(b, c);
        },
        0.5, 3);
    check_map(
        device,
        [](auto a, auto b, auto c) {
            return ht::silu(a) + ht::gelu(b) * ht::softplus(c) + ht::expm1(0.1 * a) + ht::log1p(ht::square(b)) +
                   ht::atan2(a, 3 + b) + ht::where(a < 0.1, b * a, ht::relu(c) - a);
        },
        -1.3, 1.3);
    check_map(
        device,
        [](auto a, auto b, auto c) {
            return ht::sinh(a) * ht::cosh(b) - ht::tan(0.3 * c) + ht::abs(a) * ht::min(b, a) + ht::max(a, 0.7 * c) +
                   ht::reciprocal(3 + b) - (-c);
        },
        -1.3, 1.3);
}

/// Constants, factors and what functions are defined with: against plain arithmetic, which shares nothing with
/// expressions.
template <class Device>
void constants(Device& device) {
    const ht::shape<1> s{64};
    const auto x = numbers(20, s, 0.5, 3);
    const auto there = ht::to_device(device, x);
    ht::inference context{device};
    const auto v = context.constant(there.view());
    const auto expect = [&](const auto& y, const auto& definition, int roundings) {
        const auto got = ht::to_host(device, y);
        support::comparison comparison;
        for (ht::extent i = 0; i < s.size(); ++i) {
            const long double want = definition(at(x, i));
            comparison.expect(got.data()[i], static_cast<double>(want),
                              support::gamma(roundings, u64) * static_cast<double>(std::fabs(want)));
        }
        CHECK_WITHIN(comparison);
    };
    using real = long double;
    // A decimal constant has one rounding.
    expect(
        ht::map(
            context, [](auto a) { return 0.1 * a; }, v),
        [](real a) { return a / 10; }, 3);
    expect(
        ht::map(
            context, [](auto a) { return a * (1.0 / 3); }, v),
        [](real a) { return a / 3; }, 3);
    expect(
        ht::mul(context, v, 0.1), [](real a) { return a / 10; }, 3);
    expect(
        ht::add(context, v, 0.7), [](real a) { return a + 0.7L; }, 3);
    expect(
        ht::leaky_relu(context, ht::neg(context, v)), [](real a) { return -a / 100; }, 3);
    expect(
        ht::log2(context, v), [](real a) { return std::log2(a); }, 6);
    expect(
        ht::log10(context, v), [](real a) { return std::log10(a); }, 6);
    // The argument of its exponential is at most 10.2 and goes through seven roundings.
    expect(
        ht::gelu(context, v),
        [](real a) {
            const real inner = std::sqrt(2 / std::acos(real{-1})) * (a + 0.044715L * a * a * a);
            return a * (1 + std::tanh(inner)) / 2;
        },
        7 * 11 + 8);

    // An element is dropped, or divided by the probability of keeping it.
    ht::tape tape{device};
    const auto kept = ht::to_host(device, ht::dropout(tape, tape.constant(there.view()), {.p = 0.3f}));
    int dropped = 0;
    support::comparison comparison;
    for (ht::extent i = 0; i < s.size(); ++i) {
        const double want = x.data()[i] / (1 - static_cast<double>(0.3f));
        if (kept.data()[i] == 0) {
            ++dropped;
        } else {
            comparison.expect(kept.data()[i], want, support::gamma(4, u64) * want);
        }
    }
    CHECK_WITHIN(comparison);
    CHECK(dropped > 5);
    CHECK(dropped < 40);
}

/// Sums of more terms than two levels of the tree hold; an input used twice; factors of the loss.
template <class Device>
void sums(Device& device) {
    const ht::shape<1> s{1500};
    const auto x = numbers(5, s);
    const auto there = ht::to_device(device, x);
    ht::tape tape{device};
    const auto v = tape.leaf(there.view());
    long_sum plain, squares;
    for (ht::extent i = 0; i < s.size(); ++i) plain.add(at(x, i)), squares.add(at(x, i) * at(x, i));
    const auto depth = static_cast<double>(ht::kernel::fp64::sum_depth(s.size()));
    const auto bound = [&](const long_sum& sum, double further) {
        return support::gamma(depth + further, u64) * static_cast<double>(sum.magnitude);
    };
    const double mean = ht::mean(tape, v).item(), length = ht::norm(tape, v).item();
    CHECK(std::fabs(mean - static_cast<double>(plain.value / 1500)) <= bound(plain, 3) / 1500);
    const auto exact_length = static_cast<double>(std::sqrt(squares.value));
    CHECK(std::fabs(length - exact_length) <= bound(squares, 3) / exact_length);
    CHECK(ht::dot(tape, v, v).item() == ht::sum(tape, ht::mul(tape, v, v)).item());

    // s(x) = sum of x + x x: the second gradient is added to the first one.
    auto loss = ht::add(tape, ht::sum(tape, v), ht::sum(tape, ht::mul(tape, v, v)));
    tape.backward(loss / 3);
    const auto slopes = ht::to_host(device, tape.gradient(v));
    support::comparison comparison;
    for (ht::extent i = 0; i < s.size(); ++i) {
        const long double want = (1 + 2 * at(x, i)) / 3;
        comparison.expect(slopes.data()[i], static_cast<double>(want),
                          support::gamma(5, u64) * (1 + 2 * std::fabs(x.data()[i])) / 3);
    }
    CHECK_WITHIN(comparison);
}

/// Both orientations come with the backward products.
template <class Device>
void products(Device& device) {
    const ht::extent count = 2, m = 5, k = 7, n = 3;
    const auto a = numbers(6, ht::shape<3>{count, m, k}), b = numbers(7, ht::shape<3>{count, k, n}),
               w = numbers(8, ht::shape<3>{count, m, n});
    const auto da = ht::to_device(device, a), db = ht::to_device(device, b), dw = ht::to_device(device, w);
    ht::tape tape{device};
    const auto va = tape.leaf(da.view()), vb = tape.leaf(db.view());
    const auto y = ht::matmul(ht::autocast<ht::amp_bf16>(tape), va, vb);
    static_assert(std::is_same_v<typename decltype(y)::value_type, double>);
    const auto got = ht::to_host(device, y);
    tape.backward(ht::sum(tape, ht::mul(tape, y, tape.constant(dw.view()))));
    const auto ga = ht::to_host(device, tape.gradient(va)), gb = ht::to_host(device, tape.gradient(vb));
    support::comparison comparison;
    const auto expect = [&](double value, ht::extent terms, const auto& term) {
        long_sum want;
        for (ht::extent i = 0; i < terms; ++i) want.add(term(i));
        comparison.expect(value, static_cast<double>(want.value),
                          support::gamma(static_cast<double>(terms) + 2, u64) * static_cast<double>(want.magnitude));
    };
    for (ht::extent c = 0; c < count; ++c) {
        for (ht::extent i = 0; i < m; ++i)
            for (ht::extent j = 0; j < n; ++j)
                expect(got(c, i, j), k,
                       [&](ht::extent p) { return static_cast<long double>(a(c, i, p)) * b(c, p, j); });
        for (ht::extent i = 0; i < m; ++i)
            for (ht::extent p = 0; p < k; ++p)
                expect(ga(c, i, p), n, [&](ht::extent j) { return static_cast<long double>(w(c, i, j)) * b(c, p, j); });
        for (ht::extent p = 0; p < k; ++p)
            for (ht::extent j = 0; j < n; ++j)
                expect(gb(c, p, j), m, [&](ht::extent i) { return static_cast<long double>(a(c, i, p)) * w(c, i, j); });
    }
    CHECK_WITHIN(comparison);

    // A type given explicitly: operands are rounded to it, the sums are not.
    const auto rounded = ht::to_host(device, ht::matmul<bfloat16>(tape, va, vb));
    for (ht::extent i = 0; i < m; ++i) {
        long_sum sum;
        for (ht::extent p = 0; p < k; ++p)
            sum.add(static_cast<long double>(static_cast<float>(bfloat16(a(0, i, p)))) *
                    static_cast<float>(bfloat16(b(0, p, 0))));
        CHECK(static_cast<float>(rounded(0, i, 0)) == static_cast<float>(bfloat16(sum.value)));
    }
}

/// Softmax and its logarithm of 1.7 x, and cross-entropy, by their definitions in long double.
template <class Device>
void softmaxes(Device& device) {
    const ht::extent rows = 4, width = 9;
    const ht::shape<2> s{rows, width};
    const auto x = numbers(9, s, -4, 4), w = numbers(10, s);
    const double scale = 1.7;
    const std::vector<std::int32_t> targets{3, -100, 8, 0};
    const auto dx = ht::to_device(device, x), dw = ht::to_device(device, w);
    ht::tape tape{device};
    const auto v = tape.leaf(dx.view()), logs_of = tape.leaf(dx.view()), logits = tape.leaf(dx.view());
    const auto y = ht::softmax(ht::autocast<ht::amp_fp16>(tape), v, scale);
    const auto logs = ht::log_softmax(tape, logs_of, scale);
    const auto loss = ht::cross_entropy(ht::autocast<ht::amp_bf16>(tape), logits,
                                        ht::const_view<std::int32_t, 1>(targets.data(), {rows}));
    static_assert(std::is_same_v<typename decltype(loss)::value_type, double>);
    const auto got = ht::to_host(device, y), got_logs = ht::to_host(device, logs);
    const double got_loss = loss.item();
    const auto weights = tape.constant(dw.view());
    const auto total =
        ht::add(tape, ht::sum(tape, ht::mul(tape, y, weights)), ht::sum(tape, ht::mul(tape, logs, weights)));
    tape.backward(ht::add(tape, total, loss));
    const auto g = ht::to_host(device, tape.gradient(v)), g_logs = ht::to_host(device, tape.gradient(logs_of)),
               g_loss = ht::to_host(device, tape.gradient(logits));

    // An exponential's argument is at most 2 * 1.7 * 4 and is rounded twice, its function is within 1 ulp; a sum of
    // `width` of them and a division follow. A logarithm's argument has that error.
    const double of_exponential = support::gamma(2 * 13.6 + 2, u64);
    const double of_probability = 2 * of_exponential + support::gamma(static_cast<double>(width) + 1, u64);
    const double of_logarithm = of_probability + support::gamma(2 * 13.6 + 8, u64);
    support::comparison values, slopes, of_loss;
    long double mean = 0;
    for (ht::extent i = 0; i < rows; ++i) {
        long double sum = 0, sum_plain = 0, dot = 0, sum_w = 0, magnitude = 0, sum_abs = 0;
        for (ht::extent j = 0; j < width; ++j) {
            sum += std::exp(static_cast<long double>(scale) * x(i, j));
            sum_plain += std::exp(static_cast<long double>(x(i, j)));
            sum_w += w(i, j), sum_abs += std::fabs(w(i, j));
        }
        const auto p = [&](ht::extent j) { return std::exp(static_cast<long double>(scale) * x(i, j)) / sum; };
        for (ht::extent j = 0; j < width; ++j) dot += p(j) * w(i, j), magnitude += std::fabs(p(j) * w(i, j));
        const std::int32_t target = targets[static_cast<std::size_t>(i)];
        if (target >= 0) mean += (std::log(sum_plain) - static_cast<long double>(x(i, target))) / 3;
        for (ht::extent j = 0; j < width; ++j) {
            const auto probability = static_cast<double>(p(j));
            values.expect(got(i, j), probability, of_probability * probability);
            values.expect(got_logs(i, j), static_cast<double>(std::log(p(j))), of_logarithm);
            const double rest = support::gamma(static_cast<double>(width) + 6, u64) + 2 * of_probability;
            slopes.expect(g(i, j), static_cast<double>(scale * p(j) * (w(i, j) - dot)),
                          rest * scale * probability * (std::fabs(w(i, j)) + static_cast<double>(magnitude)));
            slopes.expect(
                g_logs(i, j), static_cast<double>(scale * (w(i, j) - p(j) * sum_w)),
                (rest + of_logarithm) * scale * (std::fabs(w(i, j)) + probability * static_cast<double>(sum_abs)));
            const long double q = std::exp(static_cast<long double>(x(i, j))) / sum_plain;
            const long double want = target < 0 ? 0 : (q - (j == target ? 1 : 0)) / 3;
            slopes.expect(g_loss(i, j), static_cast<double>(want), rest * (1 + static_cast<double>(q)) / 3);
        }
    }
    of_loss.expect(got_loss, static_cast<double>(mean),
                   of_logarithm + support::gamma(6, u64) * static_cast<double>(mean));
    CHECK_WITHIN(values);
    CHECK_WITHIN(slopes);
    CHECK_WITHIN(of_loss);
}

constexpr ht::gradient_check_options sharp{.eps = 1e-5, .atol = 2e-9, .rtol = 2e-9};

template <class Device, class F, class... Inputs>
void expect_gradients(Device& device, const F& f, const Inputs&... inputs) {
    const ht::gradient_report report = ht::check_gradients(device, sharp, f, as_const(inputs.view())...);
    CHECK_MESSAGE(report.agrees(), report.text());
    CHECK(report.backward != 0);
}

/// The gradient of every free operation, sharper than floats have digits.
template <class Device>
void gradients(Device& device) {
    const ht::shape<2> s{3, 4};
    const auto x = numbers(11, s, 0.3, 1.7), y = numbers(12, s, 0.4, 1.9);
    const auto row = numbers(13, ht::shape<1>{4}, 0.2, 1.1);
    const auto w = numbers(14, ht::shape<2>{2, 4});
    const auto bias = numbers(15, ht::shape<1>{2});
    const std::vector<std::int32_t> targets{1, 3, 0};
    expect_gradients(
        device,
        [](auto& ctx, auto a, auto b, auto c) {
            return ht::div(ctx, ht::addcmul(ctx, ht::prelu(ctx, ht::sub(ctx, a, b), c), a, b, 0.1),
                           ht::addcdiv(ctx, ht::add(ctx, b, 0.7), a, b, 0.3));
        },
        x, y, row);
    expect_gradients(
        device,
        [](auto& ctx, auto a, auto b, auto c, auto d) {
            const auto z = ht::linear(ctx, ht::dropout(ctx, a, {.p = 0.3f}), c, d);
            const auto joined = ht::cat(ctx, 0, ht::reshape(ctx, a, ht::shape<3>{1, 3, 4}), ht::stack(ctx, 0, b));
            return ht::add(ctx, ht::leaky_relu(ctx, ht::sum(ctx, z), 0.1), ht::norm(ctx, joined));
        },
        x, y, w, bias);
    expect_gradients(
        device,
        [&](auto& ctx, auto a, auto b) {
            const auto region = ht::autocast<ht::amp_fp16>(ctx);
            const auto sum =
                ht::add(ctx, ht::add(ctx, ht::mean_squared_error(region, a, b), ht::huber_loss(region, a, b, 0.3)),
                        ht::add(ctx, ht::l1_loss(region, a, b), ht::smooth_l1_loss(region, a, b, 0.7)));
            const auto entropies =
                ht::add(ctx, ht::binary_cross_entropy_with_logits(region, a, b),
                        ht::cross_entropy(region, a, ht::const_view<std::int32_t, 1>(targets.data(), {3})));
            return ht::add(ctx, sum, ht::add(ctx, entropies, ht::mean(region, ht::log_softmax(region, b, 0.3))));
        },
        x, y);
}

/// Doubles with other types: what has a double computes in double, and each gradient has its input's type.
template <class Device>
void mixed(Device& device) {
    const ht::shape<2> s{5, 3};
    const auto x = numbers(16, s);
    const auto narrow_values = support::random(17).normals<float>(15);
    const auto dx = ht::to_device(device, x);
    const auto dn = ht::to_device(device, ht::const_view<float, 2>(narrow_values.data(), s));
    ht::tape tape{device};
    const auto v = tape.leaf(dx.view());
    const auto n = tape.leaf(dn.view());
    const auto region = ht::autocast<ht::amp_bf16>(tape);
    const auto product = ht::mul(region, n, v);
    const auto cast = ht::cast<bfloat16>(region, v);
    static_assert(std::is_same_v<typename decltype(product)::value_type, double>);
    static_assert(std::is_same_v<typename decltype(ht::softmax<float>(region, v))::value_type, float>);
    static_assert(std::is_same_v<typename decltype(ht::sum<double>(region, n))::value_type, double>);
    const auto products = ht::to_host(device, product);
    const auto casts = ht::to_host(device, cast);
    const auto narrow_softmax = ht::to_host(device, ht::softmax<float>(region, v)),
               wide_rounded = ht::to_host(device, ht::cast<float>(tape, ht::softmax(tape, v)));
    const double narrow_sum = ht::sum<double>(region, n).item();
    long_sum want_sum;
    tape.backward(ht::sum(tape, product));
    const auto dv = ht::to_host(device, tape.gradient(v));
    const ht::host_tensor<float, 2> dnarrow = ht::to_host(device, tape.gradient(n));
    for (ht::extent i = 0; i < s.size(); ++i) {
        const float narrow = narrow_values[static_cast<std::size_t>(i)];
        CHECK(products.data()[i] == x.data()[i] * static_cast<double>(narrow));
        CHECK(casts.data()[i].bits() == bfloat16(x.data()[i]).bits());
        CHECK(narrow_softmax.data()[i] == wide_rounded.data()[i]);
        CHECK(dv.data()[i] == static_cast<double>(narrow));
        CHECK(dnarrow.data()[i] == static_cast<float>(x.data()[i]));
        want_sum.add(static_cast<long double>(narrow));
    }
    CHECK(std::fabs(narrow_sum - static_cast<double>(want_sum.value)) <=
          support::gamma(16, u64) * static_cast<double>(want_sum.magnitude));
}

/// x^3, and the same with a wrong derivative, with one in float, and by way of float.
struct cubed : support::cubed {
    static constexpr ht::category cast_rule = ht::category::low_precision;
};
struct wrongly_cubed : cubed {
    static auto backward(auto& ctx, const auto& dy, const auto& x) {
        return ht::map(
            ctx, [](auto g, auto a) { return 2 * a * a * g; }, dy, x);
    }
};
struct roughly_cubed : cubed {
    static auto backward(auto& ctx, const auto& dy, const auto& x) {
        return cubed::backward(ctx, ht::cast<float>(ctx, dy), ht::cast<float>(ctx, x));
    }
};
struct cubed_by_way_of_float : cubed {
    static auto forward(auto& ctx, const auto& x) {
        const auto y = ht::map(
            ctx, [](auto a) { return a * a * a; }, ht::cast<float>(ctx, x));
        return ht::keep(ht::cast<double>(ctx, y), x);
    }
};

/// What check_gradients tells of them.
template <class Device>
void own_operations(Device& device) {
    const auto scale = numbers(18, ht::shape<0>{}, 1, 2);
    const auto x = numbers(19, ht::shape<2>{2, 3}, 0.5, 2);
    const auto run = [&]<class Op>(Op*, const ht::gradient_check_options& options = {}) {
        return ht::check_gradients(
            device, options,
            [](auto& ctx, auto c, auto a) {
                return ht::mul(ctx, ht::apply<Op>(ht::autocast<ht::amp_bf16>(ctx), a), c);
            },
            scale.view(), x.view());
    };
    const auto right = run(static_cast<cubed*>(nullptr), sharp);
    CHECK_MESSAGE(right.agrees(), right.text());
    CHECK(right.checked == 7);
    CHECK(right.text().find("0 of 7 elements disagree") != std::string::npos);

    const auto wrong = run(static_cast<wrongly_cubed*>(nullptr));
    CHECK(wrong.disagree == 6);
    CHECK(wrong.input == "input 1");
    CHECK(std::fabs(wrong.backward / wrong.differences - 2.0 / 3) < 1e-5);
    CHECK(wrong.text().find("check_gradients: input 1, element ") == 0);

    CHECK(run(static_cast<roughly_cubed*>(nullptr)).agrees());
    CHECK_FALSE(run(static_cast<roughly_cubed*>(nullptr), sharp).agrees());
    CHECK_FALSE(run(static_cast<cubed_by_way_of_float*>(nullptr)).agrees());

    CHECK_THROWS_AS(static_cast<void>(run(static_cast<cubed*>(nullptr), {.eps = 0})), ht::argument_error);
    int calls = 0;
    CHECK_THROWS_AS(static_cast<void>(ht::check_gradients(
                        device, [&calls](auto& ctx, auto a) { return ht::mul(ctx, a, ++calls); }, x.view())),
                    ht::state_error);
    // A gradient that should have arrived, and is missing.
    const auto detached = ht::check_gradients(
        device, [](auto& ctx, auto a) { return ht::add(ctx, ht::detach(ctx, a), 1); }, x.view());
    CHECK(detached.disagree == 6);
}

}  // namespace double_checks
