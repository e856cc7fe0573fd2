// SPDX-License-Identifier: MIT
/// \file
/// Reductions along axes, of any device, against their definition.
///
///     axis_checks::all_operations<float, ht::bfloat16>(device, {3, 5, 7}, ht::axes<0, 2>);
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/axis_reduction/along/function.hpp>
#include <halftone/kernel/axis_reduction/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/float16.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace axis_checks {

namespace ht = halftone;
using ht::axis_list;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using ht::kernel::axis_layout;
using ht::kernel::axis_operation;
using support::guarded;

inline constexpr axis_operation every_operation[] = {axis_operation::sum,     axis_operation::var,
                                                     axis_operation::std_dev, axis_operation::logsumexp,
                                                     axis_operation::amax,    axis_operation::amin};

/// The elements of an output, in double.
template <class X>
std::vector<double> elements_of(const X* x, const axis_layout& l, extent output) {
    std::vector<double> all;
    for (extent i = 0; i < l.reduced_size; ++i)
        all.push_back(static_cast<double>(x[l.output_offset(output) + l.reduced_offset(i)]));
    return all;
}
inline ht::reference::reduced definition(axis_operation operation, const std::vector<double>& x, double factor) {
    return ht::reference::reduce_elements(
        operation, static_cast<extent>(x.size()), [&](extent i) { return x[static_cast<std::size_t>(i)]; }, factor);
}
/// The error of a float sum relative to the sum of its terms' magnitudes; each term has been rounded `before` times.
inline double sum_error(std::size_t size, double before = 0) {
    return support::gamma(static_cast<double>(ht::kernel::axis_depth(static_cast<extent>(size))) + before) + support::u;
}
/// The errors of an output's result and of its kept value, before they are rounded to their types.
inline ht::reference::reduced error_of(axis_operation operation, const std::vector<double>& x, double factor) {
    using enum axis_operation;
    const ht::reference::reduced want = definition(operation, x, factor);
    const auto n = static_cast<double>(x.size());
    double magnitudes = 0;
    for (const double v : x) magnitudes += std::fabs(v);
    if (operation == sum) return {factor * magnitudes * sum_error(x.size(), 1), 0};
    if (operation == var) {
        // A difference that is off by e adds up to 2 e |x - mean| + e^2 to its square.
        const double mean = magnitudes / n * sum_error(x.size(), 1);
        double squares = 0, by_mean = 0;
        for (const double v : x) {
            const double d = std::fabs(v - want.kept);
            squares += d * d;
            by_mean += 2 * mean * d + mean * mean;
        }
        return {std::fabs(factor) * ((squares + by_mean) * sum_error(x.size(), 4) + by_mean), mean};
    }
    if (operation == std_dev) {
        const ht::reference::reduced off = error_of(var, x, factor);
        const double square = want.value * want.value;
        return {square > off.value ? want.value - std::sqrt(square - off.value) : std::sqrt(square + off.value),
                off.kept};
    }
    if (operation == logsumexp) {
        const double largest = *std::max_element(x.begin(), x.end());
        double sum = 0, error = 0;
        for (const double v : x) {
            const double e = std::exp(v - largest), rounded = std::fabs(v - largest) * support::u;  // the difference's
            sum += e;
            error += e * (rounded + 8 * support::u) + 0x1p-126;
        }
        const double off =
            sum_error(x.size()) + error / sum + 2 * support::u * (std::fabs(want.value) + std::fabs(largest));
        return {off, off};
    }
    if (operation == prod) {
        const double off = support::gamma(n) * std::fabs(want.value) + n * 0x1p-126;
        return {off, off};
    }
    return {0, 0};
}

/// Compares y and the kept values with the definition, and then y added to existing values.
template <class X, class Y, int Rank, int... Axes, class Device>
void forward(Device& device, const ht::const_view<X, Rank>& x, axis_list<Axes...> along, axis_operation operation) {
    CAPTURE(static_cast<int>(operation));
    const axis_layout l = ht::kernel::axis_layout_of(x, along);
    const bool is_spread = operation == axis_operation::var || operation == axis_operation::std_dev;
    const double factor = is_spread ? 1.0 / std::max(1.0, static_cast<double>(l.reduced_size) - 1)
                                    : 1.0 / static_cast<double>(l.reduced_size);
    const guarded<Y> y(l.outputs, 3);
    const guarded<float> kept(ht::kernel::kept_values(operation, l));
    ht::kernel::axis_reduction<Device>::run(
        device, ht::kernel::reduction<X, Y>{x.data(), l, y.data(), operation, factor, kept.data()});
    support::comparison results, keeps;
    for (extent o = 0; o < l.outputs; ++o) {
        const std::vector<double> in = elements_of(x.data(), l, o);
        const ht::reference::reduced want = definition(operation, in, factor), error = error_of(operation, in, factor);
        const double once = support::rounded<float>(want.value, error.value);
        results.expect(static_cast<double>(y[o]), want.value,
                       std::is_same_v<Y, float> ? once : support::rounded<Y>(want.value, once));
        keeps.expect(static_cast<double>(kept[o]), want.kept,
                     is_spread ? support::rounded<float>(want.kept, error.kept) : once);
        if (operation == axis_operation::std_dev)
            keeps.expect(static_cast<double>(kept[l.outputs + o]), want.value, once);
    }
    CHECK_MESSAGE(results.within(), results);
    CHECK_MESSAGE(results.telling(l.reduced_size == 1 ? 0.0 : 0.5), results);
    CHECK_MESSAGE(keeps.within(), keeps);
    CHECK(y.intact());
    CHECK(kept.intact());
    // Added to existing values.
    const guarded<Y> sum(std::vector<Y>(static_cast<std::size_t>(l.outputs), static_cast<Y>(2.0f)));
    ht::kernel::axis_reduction<Device>::run(
        device, ht::kernel::reduction<X, Y>{x.data(), l, sum.data(), operation, factor, nullptr, ht::write_mode::add});
    for (extent o = 0; o < l.outputs; ++o) {
        const double want = 2 + static_cast<double>(y[o]);
        CHECK(std::fabs(static_cast<double>(sum[o]) - want) <=
              support::rounded<Y>(
                  want, 2 * support::rounding<Y>(static_cast<double>(y[o])) + 2 * support::u * std::fabs(want)));
    }
}

/// The gradient of a contiguous x.
template <class X, class Y, int Rank, int... Axes, class Device>
void backward(Device& device, const ht::const_view<X, Rank>& x, axis_list<Axes...> along, axis_operation operation,
              ht::write_mode mode) {
    CAPTURE(static_cast<int>(operation));
    const axis_layout l = ht::kernel::axis_layout_of(x, along);
    const double factor = 0.75 / static_cast<double>(l.reduced_size);
    support::random data(17);
    const guarded<Y> dy(data.normals<Y>(l.outputs), 5);
    const guarded<X> dx(std::vector<X>(static_cast<std::size_t>(x.size()), static_cast<X>(0.5f)), 2);
    const guarded<float> kept(ht::kernel::kept_values(operation, l));
    for (extent o = 0; o < l.outputs; ++o) {
        const ht::reference::reduced found = definition(operation, elements_of(x.data(), l, o), factor);
        kept[o] = static_cast<float>(found.kept);
        if (operation == axis_operation::std_dev) kept[l.outputs + o] = static_cast<float>(found.value);
    }
    ht::kernel::axis_reduction<Device>::backward(
        device,
        ht::kernel::reduction_gradient<X, Y>{x.data(), l, kept.data(), dy.data(), dx.data(), operation, factor, mode});
    support::comparison c;
    for (extent o = 0; o < l.outputs; ++o) {
        const std::vector<double> in = elements_of(x.data(), l, o);
        const double k = static_cast<double>(kept[o]), slope = static_cast<double>(dy[o]);
        const auto element = [&](extent i) { return in[static_cast<std::size_t>(i)]; };
        ht::reference::reduce_gradient(
            operation, l.reduced_size, element, k, slope, factor, [&](extent i, double want) {
                // The slope is a product or a quotient with a rounded factor; differences, exponentials and products follow.
                double error = (4 + 8) * support::u * std::fabs(want);
                if (operation == axis_operation::logsumexp)
                    error += std::fabs(want) * 2 * support::u * std::fabs(element(i) - k) + 0x1p-126 * std::fabs(slope);
                if (operation == axis_operation::std_dev && kept[l.outputs + o] != 0)
                    error += std::fabs(factor * slope / static_cast<double>(kept[l.outputs + o]) * k) * support::u;
                if (operation == axis_operation::prod)
                    error += support::gamma(static_cast<double>(l.reduced_size)) * std::fabs(want);
                const double old = mode == ht::write_mode::add ? 0.5 : 0.0;
                c.expect(static_cast<double>(dx.data()[l.output_offset(o) + l.reduced_offset(i)]), old + want,
                         support::rounded<X>(old + want, error + support::u * std::fabs(old + want)));
            });
    }
    CHECK_MESSAGE(c.within(), c);
    CHECK(dx.intact());
}

/// Products of elements near 1, of either sign. Every fifth output has a zero, and every seventh one, in another position.
template <class X, class Y, int Rank, int... Axes, class Device>
void products(Device& device, const ht::shape<Rank>& s, axis_list<Axes...> along, extent apart = 1) {
    CAPTURE(s);
    support::random data(static_cast<std::uint64_t>(s.size()) + 3);
    const guarded<X> x(s.size(), apart);
    for (extent i = 0; i < s.size(); ++i)
        x[i] = static_cast<X>(static_cast<float>(std::exp(data.uniform(-0.1, 0.1)) * (i % 3 == 1 ? -1 : 1)));
    const axis_layout l = ht::kernel::axis_layout_of(x.const_view(s), along);
    for (extent o = 0; o < l.outputs && l.reduced_size > 2; ++o) {
        if (o % 5 == 1) x[l.output_offset(o) + l.reduced_offset(l.reduced_size - 1)] = X(0.0f);
        if (o % 7 == 1) x[l.output_offset(o) + l.reduced_offset(1)] = X(0.0f);
    }
    forward<X, Y>(device, x.const_view(s), along, axis_operation::prod);
    backward<X, Y>(device, x.const_view(s), along, axis_operation::prod, ht::write_mode::overwrite);
    backward<X, Y>(device, x.const_view(s), along, axis_operation::prod, ht::write_mode::add);
}

/// Gradients of products with zeros, infinities, NaN, and elements whose product leaves float's range: as plain loops give
/// them that multiply all other elements. In a row with a NaN, every element's gradient is NaN.
template <class X, class Device>
void special_products(Device& device) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
    constexpr extent rows = 12, width = 4;
    const float values[rows][width] = {{0, infinity, 2, 1},
                                       {infinity, 2, -3, 1},
                                       {infinity, -infinity, 2, 3},
                                       {0, 0, infinity, 2},
                                       {nan, 1, 0, 2},
                                       {nan, 0, 0, 2},
                                       {0x1p100f, 0x1p100f, 0x1p-90f, -1},
                                       {0x1p-100f, 0x1p-100f, 0x1p90f, 1},
                                       {-0.0f, 3, 0x1p120f, 512},
                                       {0, infinity, 0x1p-100f, 0},
                                       {1, 2, 3, 4},
                                       {0, 2, 3, 4}};
    for (const bool is_columns : {false, true}) {
        for (const auto mode : {ht::write_mode::overwrite, ht::write_mode::add}) {
            CAPTURE(is_columns);
            std::vector<X> x(rows * width), dx(rows * width, X(0.5f));
            const auto place = [&](extent row, extent i) {
                return static_cast<std::size_t>(is_columns ? i * rows + row : row * width + i);
            };
            for (extent row = 0; row < rows; ++row)
                for (extent i = 0; i < width; ++i) x[place(row, i)] = static_cast<X>(values[row][i]);
            const std::vector<float> dy(rows, 2.0f);
            const axis_layout l =
                is_columns ? ht::kernel::axis_layout_of(ht::const_view<X, 2>(x.data(), {width, rows}), ht::axes<0>)
                           : ht::kernel::axis_layout_of(ht::const_view<X, 2>(x.data(), {rows, width}), ht::axes<1>);
            ht::kernel::axis_reduction<Device>::backward(
                device, ht::kernel::reduction_gradient<X, float>{x.data(), l, nullptr, dy.data(), dx.data(),
                                                                 axis_operation::prod, 1, mode});
            for (extent row = 0; row < rows; ++row) {
                for (extent i = 0; i < width; ++i) {
                    double want = 2;
                    bool has_nan = false;
                    for (extent j = 0; j < width; ++j) {
                        const auto other = static_cast<double>(static_cast<float>(x[place(row, j)]));
                        has_nan = has_nan || ht::is_nan(other);
                        if (j != i) want *= other;
                    }
                    if (has_nan) want = static_cast<double>(nan);
                    if (mode == ht::write_mode::add) want += 0.5;
                    const auto expected = static_cast<float>(static_cast<X>(want)),
                               got = static_cast<float>(dx[place(row, i)]);
                    CAPTURE(row);
                    CAPTURE(i);
                    CAPTURE(expected);
                    CAPTURE(got);
                    CHECK((ht::is_nan(expected) ? ht::is_nan(got) : got == expected));
                }
            }
        }
    }
}

template <class X, class Y, int Rank, int... Axes, class Device>
void all_operations(Device& device, const ht::shape<Rank>& s, axis_list<Axes...> along, extent apart = 1) {
    CAPTURE(s);
    support::random data(static_cast<std::uint64_t>(s.size()) + 11);
    const guarded<X> x(data.normals<X>(s.size(), 1, 0.75), apart);
    const auto view = x.const_view(s);
    for (const axis_operation operation : every_operation) {
        forward<X, Y>(device, view, along, operation);
        backward<X, Y>(device, view, along, operation, ht::write_mode::overwrite);
        backward<X, Y>(device, view, along, operation, ht::write_mode::add);
    }
    const axis_layout l = ht::kernel::axis_layout_of(view, along);
    for (const bool largest : {true, false}) {
        const guarded<std::int32_t> at(l.outputs);
        ht::kernel::axis_reduction<Device>::index(
            device, ht::kernel::reduction_index<X>{x.data(), l, at.data(),
                                                   largest ? axis_operation::amax : axis_operation::amin});
        extent wrong = 0;
        for (extent o = 0; o < l.outputs; ++o) {
            const std::vector<double> in = elements_of(x.data(), l, o);
            const extent want = ht::reference::index_of_most(
                l.reduced_size, [&](extent i) { return in[static_cast<std::size_t>(i)]; }, largest);
            wrong += at[o] != want ? 1 : 0;
        }
        CHECK(wrong == 0);
        CHECK(at.intact());
    }
}

/// Every arrangement of reduced axes: the outer ones, the inner ones, those in the middle, two that are apart, all.
template <class X, class Y, class Device>
void every_layout(Device& device, extent apart = 1) {
    using ht::axes, ht::shape;
    for (const extent n : {1, 2, 5, 67, 513}) {
        CAPTURE(n);
        all_operations<X, Y>(device, shape<1>{n}, axes<0>, apart);
        all_operations<X, Y>(device, shape<2>{3, n}, axes<-1>, apart);
        all_operations<X, Y>(device, shape<2>{n, 3}, axes<0>, apart);
        all_operations<X, Y>(device, shape<2>{7, n}, axes<0>, apart);
        all_operations<X, Y>(device, shape<3>{2, n, 9}, axes<1>, apart);
        all_operations<X, Y>(device, shape<3>{3, 4, n}, axes<0, 2>, apart);
        all_operations<X, Y>(device, shape<3>{3, 4, n}, axes<0, 1>, apart);
        products<X, Y>(device, shape<2>{23, n}, axes<1>, apart);
        products<X, Y>(device, shape<3>{2, n, 9}, axes<1>, apart);
        products<X, Y>(device, shape<3>{3, 14, n}, axes<0, 2>, apart);
    }
    all_operations<X, Y>(device, shape<4>{3, 2, 5, 17}, axes<0, 2>, apart);
    all_operations<X, Y>(device, shape<4>{3, 2, 5, 4}, axes<1, 3>, apart);
    all_operations<X, Y>(device, shape<4>{3, 2, 5, 4}, axes<0, 1, 2, 3>, apart);
    all_operations<X, Y>(device, shape<4>{3, 1, 5, 4}, axes<1>, apart);
}

/// Elements whose mean and largest one change from block to block: they rise, fall, jump, or begin with a mask; along rows and
/// columns, of one block and of several pieces.
template <class Device>
void uneven_blocks(Device& device) {
    for (const extent n : {64, 65, 700, 20000}) {
        for (const int kind : {0, 1, 2, 3}) {
            CAPTURE(n);
            CAPTURE(kind);
            support::random data(static_cast<std::uint64_t>(n + kind));
            const extent others = 3;
            const guarded<float> rows(data.normals<float>(n * others)), columns(n * others);
            for (extent i = 0; i < n; ++i) {
                const auto at = static_cast<float>(i);
                const float added = kind == 0   ? 0.02f * at
                                    : kind == 1 ? -0.02f * at
                                    : kind == 2 ? (i / 300 % 2 == 1 ? 500.0f : -500.0f)
                                    : i < n / 2 ? -1e6f
                                                : 0.0f;
                for (extent o = 0; o < others; ++o) {
                    rows[o * n + i] += added;
                    columns[i * others + o] = rows[o * n + i];
                }
            }
            for (const auto operation : {axis_operation::var, axis_operation::logsumexp}) {
                forward<float, float>(device, rows.const_view(ht::shape<2>{others, n}), ht::axes<1>, operation);
                forward<float, float>(device, columns.const_view(ht::shape<2>{n, others}), ht::axes<0>, operation);
            }
        }
    }
}
/// An infinite element and a NaN in different blocks, in either order.
template <class Device>
void special_blocks(Device& device) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
    for (const extent n : {200, 3000, 40000}) {
        // Of each column: a NaN at the end, infinity at the end, both in either order, all minus infinity, that at first.
        std::vector<float> x(static_cast<std::size_t>(n * 6), 1.0f);
        const auto at = [&](extent i, extent o) -> float& { return x[static_cast<std::size_t>(i * 6 + o)]; };
        at(n - 1, 0) = nan, at(n - 1, 1) = infinity;
        at(n / 3, 2) = infinity, at(n - 1, 2) = nan, at(n / 3, 3) = nan, at(n - 1, 3) = infinity;
        for (extent i = 0; i < n; ++i) at(i, 4) = -infinity;
        for (extent i = 0; i < n - 1; ++i) at(i, 5) = -infinity;
        const ht::const_view<float, 2> down(x.data(), {n, 6});
        std::vector<float> turned;
        for (extent o = 0; o < 6; ++o) {
            for (extent i = 0; i < n; ++i) turned.push_back(at(i, o));
        }
        float y[6], m[6];
        const auto check = [&](const auto& in, auto along) {
            ht::logsumexp(device, in, along, ht::view<float, 1>(y, {6}));
            CHECK((ht::is_nan(y[0]) && y[1] == infinity && ht::is_nan(y[2]) && ht::is_nan(y[3]) && y[4] == -infinity));
            CHECK(y[5] == 1);
            ht::amax(device, in, along, ht::view<float, 1>(m, {6}));
            CHECK((ht::is_nan(m[0]) && m[1] == infinity && ht::is_nan(m[2]) && ht::is_nan(m[3]) && m[4] == -infinity));
            ht::var(device, in, along, ht::view<float, 1>(y, {6}));
            for (const float v : y) CHECK(ht::is_nan(v));
        };
        check(down, ht::axes<0>);
        check(ht::const_view<float, 2>(turned.data(), {6, n}), ht::axes<1>);
    }
}

/// The free functions on a transposed and on a broadcast view, with and without the axes that are reduced.
template <class Device>
void free_functions(Device& device) {
    constexpr extent rows = 5, columns = 21;
    support::random data(3);
    const guarded<float> x(data.normals<float>(rows * columns, 1, 0.5));
    const ht::const_view<float, 2> turned(x.data(), {columns, rows}, {1, columns}),
        broadcast(x.data(), {rows, 4}, {columns, 0});
    const auto check = [&](const auto& call, const auto& in, auto along, axis_operation operation, double factor,
                           bool root) {
        const axis_layout l = ht::kernel::axis_layout_of(in, along);
        const guarded<float> y(l.outputs), kept(l.outputs);
        call(in, along, ht::view<float, 1>(y.data(), {l.outputs}));
        call(in, along, ht::view<float, 2>(kept.data(), ht::detail::with_ones(in.shape(), along)));
        support::comparison c;
        for (extent o = 0; o < l.outputs; ++o) {
            const std::vector<double> of = elements_of(in.data(), l, o);
            const double want = definition(operation, of, factor).value, error = error_of(operation, of, factor).value;
            const double value = root ? std::sqrt(want) : want;
            c.expect(static_cast<double>(y[o]), value,
                     support::rounded<float>(value, root ? error / value + 2 * support::u * value : error));
            CHECK(y[o] == kept[o]);
        }
        CHECK_MESSAGE(c.within(), c);
    };
    using enum axis_operation;
    const auto each = [&](const auto& in, auto along) {
        const auto n = static_cast<double>(ht::kernel::axis_layout_of(in, along).reduced_size);
        check([&](auto& v, auto a, auto y) { ht::sum(device, v, a, y); }, in, along, sum, 1, false);
        check([&](auto& v, auto a, auto y) { ht::mean(device, v, a, y); }, in, along, sum, 1 / n, false);
        check([&](auto& v, auto a, auto y) { ht::amax(device, v, a, y); }, in, along, amax, 1, false);
        check([&](auto& v, auto a, auto y) { ht::amin(device, v, a, y); }, in, along, amin, 1, false);
        check([&](auto& v, auto a, auto y) { ht::logsumexp(device, v, a, y); }, in, along, logsumexp, 1, false);
        check([&](auto& v, auto a, auto y) { ht::prod(device, v, a, y); }, in, along, prod, 1, false);
    };
    const auto spread = [&](const auto& in, auto along) {
        const auto n = static_cast<double>(ht::kernel::axis_layout_of(in, along).reduced_size);
        check([&](auto& v, auto a, auto y) { ht::var(device, v, a, y); }, in, along, var, 1 / (n - 1), false);
        check([&](auto& v, auto a, auto y) { ht::var(device, v, a, y, {.correction = 0}); }, in, along, var, 1 / n,
              false);
        check([&](auto& v, auto a, auto y) { ht::std(device, v, a, y); }, in, along, var, 1 / (n - 1), true);
    };
    each(turned, ht::axes<0>), each(turned, ht::axes<1>), each(broadcast, ht::axes<0>), each(broadcast, ht::axes<1>);
    spread(turned, ht::axes<0>), spread(turned, ht::axes<1>), spread(broadcast, ht::axes<0>);
}

template <class Device>
void what_is_special(Device& device) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
    const float rows[] = {1, nan, 2, -infinity, -infinity, -infinity, infinity, 1, 2, 3, 3, 1};
    float y[4];
    std::int32_t at[4];
    const ht::const_view<float, 2> x(rows, {4, 3});
    const ht::view<float, 1> out(y, {4});
    ht::amax(device, x, ht::axes<1>, out);
    CHECK((ht::is_nan(y[0]) && y[1] == -infinity && y[2] == infinity && y[3] == 3));
    ht::amin(device, x, ht::axes<1>, out);
    CHECK((ht::is_nan(y[0]) && y[1] == -infinity && y[2] == 1 && y[3] == 1));
    ht::argmax(device, x, ht::axes<1>, ht::view<std::int32_t, 1>(at, {4}));
    CHECK((at[0] == 1 && at[1] == 0 && at[2] == 0 && at[3] == 0));
    ht::argmin(device, x, ht::axes<1>, ht::view<std::int32_t, 1>(at, {4}));
    CHECK((at[0] == 1 && at[1] == 0 && at[2] == 1 && at[3] == 2));
    ht::logsumexp(device, x, ht::axes<1>, out);
    CHECK((ht::is_nan(y[0]) && y[1] == -infinity && y[2] == infinity && std::fabs(y[3] - 3.7586f) < 1e-4f));
    // Large numbers: exponentials are of differences from the largest, so that none overflows.
    const float large[] = {200, 200, 200, -300, -300, -300};
    ht::logsumexp(device, ht::const_view<float, 2>(large, {2, 3}), ht::axes<1>, ht::view<float, 1>(y, {2}));
    CHECK((std::fabs(y[0] - 201.09861f) < 1e-4f && std::fabs(y[1] + 298.90139f) < 1e-4f));
    // The same by columns, one of which contains a NaN.
    const float columns[] = {1, nan, 2, 3, -infinity, 1, 5, 2};
    const ht::const_view<float, 2> down(columns, {2, 4});
    ht::amax(device, down, ht::axes<0>, out);
    CHECK((y[0] == 1 && ht::is_nan(y[1]) && y[2] == 5 && y[3] == 3));
    ht::argmin(device, down, ht::axes<0>, ht::view<std::int32_t, 1>(at, {4}));
    CHECK((at[0] == 1 && at[1] == 0 && at[2] == 0 && at[3] == 1));

    // Reductions of no elements, as PyTorch defines them.
    const ht::const_view<float, 2> nothing(rows, {4, 0}), no_rows(rows, {0, 3});
    ht::sum(device, nothing, ht::axes<1>, out);
    CHECK((y[0] == 0 && y[3] == 0));
    ht::prod(device, nothing, ht::axes<1>, out);
    CHECK((y[0] == 1 && y[3] == 1));
    ht::mean(device, nothing, ht::axes<1>, out);
    CHECK((ht::is_nan(y[0]) && ht::is_nan(y[3])));
    ht::var(device, nothing, ht::axes<1>, out);
    CHECK(ht::is_nan(y[0]));
    ht::logsumexp(device, nothing, ht::axes<1>, out);
    CHECK(y[0] == -infinity);
    ht::var(device, ht::const_view<float, 2>(rows + 9, {1, 1}), ht::axes<1>, ht::view<float, 1>(y, {1}));
    CHECK(ht::is_nan(y[0]));
    ht::amax(device, no_rows, ht::axes<1>, ht::view<float, 1>(nullptr, {0}));
    CHECK_THROWS_WITH_AS(
        ht::amax(device, nothing, ht::axes<1>, out),
        "amax: there are no elements along the axes that are reduced, so none is the largest or the smallest",
        ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::sum(device, x, ht::axes<0>, out), "sum: y is (4); expected (3)", ht::shape_error);

    // Equally large elements share the gradient evenly; in a row with a NaN every element's gradient is NaN.
    const float kept[] = {nan, -infinity, infinity, 3}, dy[] = {1, 1, 1, 1};
    float dx[12];
    const auto l = ht::kernel::axis_layout_of(x, ht::axes<1>);
    ht::kernel::axis_reduction<Device>::backward(
        device, ht::kernel::reduction_gradient<float, float>{rows, l, kept, dy, dx, axis_operation::amax});
    CHECK((ht::is_nan(dx[0]) && ht::is_nan(dx[2])));
    CHECK((dx[3] == 1.0f / 3 && dx[6] == 1 && dx[7] == 0 && dx[9] == 0.5f && dx[10] == 0.5f && dx[11] == 0));
}

/// Standard deviations, or variances, of elements of these scales, one for each output: of rows and of columns, of one
/// block and of several pieces.
template <class X, class Device>
void spreads_of_scales(Device& device, axis_operation operation, const std::vector<int>& scales) {
    const auto outputs = static_cast<extent>(scales.size());
    for (const extent n : {2, 5, 67, 600, 20000}) {
        CAPTURE(n);
        support::random data(static_cast<std::uint64_t>(n));
        const std::vector<float> normals = data.normals<float>(n * outputs);
        std::vector<X> rows(static_cast<std::size_t>(n * outputs)), columns(rows.size());
        for (extent o = 0; o < outputs; ++o) {
            for (extent i = 0; i < n; ++i) {
                const auto at = static_cast<std::size_t>(o * n + i);
                const float bounded = std::clamp(normals[at], -4.0f, 4.0f);
                rows[at] = static_cast<X>(std::ldexp(bounded, scales[static_cast<std::size_t>(o)]));
                columns[static_cast<std::size_t>(i * outputs + o)] = rows[at];
            }
        }
        const ht::const_view<X, 2> across(rows.data(), {outputs, n}), down(columns.data(), {n, outputs});
        forward<X, float>(device, across, ht::axes<1>, operation);
        forward<X, float>(device, down, ht::axes<0>, operation);
        if (operation == axis_operation::var) continue;
        for (const auto mode : {ht::write_mode::overwrite, ht::write_mode::add}) {
            backward<X, float>(device, across, ht::axes<1>, operation, mode);
            backward<X, float>(device, down, ht::axes<0>, operation, mode);
        }
    }
}

/// Standard deviations of every size that X has, from the smallest numbers that float has to the largest.
template <class X, class Device>
void deviations_of_every_size(Device& device) {
    spreads_of_scales<X>(device, axis_operation::std_dev,
                         {-140, -126, -110, -83, -75, -64, -50, -45, -20, 0, 40, 62, 66, 83, 100, 120, 124});
    // PyTorch 2.15 has the same on a CPU.
    for (const float a : {1e-40f, 1e-25f, 1e25f, 1e38f}) {
        const X x[] = {static_cast<X>(a), static_cast<X>(-a)};
        float y;
        ht::std(device, ht::const_view<X, 1>(x, {2}), ht::axes<0>, ht::view<float, 0>(&y, {}));
        const double want = std::sqrt(2.0) * static_cast<double>(static_cast<float>(x[0]));
        CAPTURE(a);
        CHECK(std::fabs(static_cast<double>(y) - want) <= support::rounded<float>(want, 0));
    }
}

/// The variance of `n` elements, the given ones in turn: of a row, of the middle one of three columns, which is added to 1, and
/// of a row in 16 bits.
template <class X, class Device>
std::vector<double> variances_of(Device& device, const std::vector<float>& given, extent n, double correction) {
    std::vector<X> row(static_cast<std::size_t>(n)), columns(3 * row.size(), static_cast<X>(2.0f));
    for (std::size_t i = 0; i < row.size(); ++i)
        row[i] = columns[3 * i + 1] = static_cast<X>(given[i % given.size()]);
    float of_row, of_columns[]{1, 1, 1};
    bfloat16 narrow;
    const ht::const_view<X, 1> across(row.data(), {n});
    const ht::const_view<X, 2> down(columns.data(), {n, 3});
    const ht::var_options options{.correction = correction};
    ht::var(device, across, ht::axes<0>, ht::view<float, 0>(&of_row, {}), options);
    ht::var(device, across, ht::axes<0>, ht::view<bfloat16, 0>(&narrow, {}), options);
    const axis_layout l = ht::kernel::axis_layout_of(down, ht::axes<0>);
    ht::kernel::axis_reduction<Device>::run(
        device, ht::kernel::reduction<X, float>{.x = down.data(), .layout = l, .y = of_columns, .operation = axis_operation::var,
                                                .factor = ht::detail::variance_factor(n, options),
                                                .mode = ht::write_mode::add});
    return {static_cast<double>(of_row), static_cast<double>(of_columns[1]), static_cast<double>(narrow)};
}

/// Variances of which an intermediate sum or square leaves float's range, and those divided by 0.
template <class X, class Device>
void variances_beyond_float(Device& device) {
    constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
    spreads_of_scales<X>(device, axis_operation::var, {-72, -66, -62, -58, -50, -45, 0, 40, 58, 61});
    struct variance {
        std::vector<float> elements;
        double correction, want;  // those of PyTorch 2.15
    };
    const variance all[]{{{3e38f}, 0, 0},         {{-3e38f}, 0, 0},          {{3e38f, -3e38f}, 0, infinity},
                         {{1e25f, -1e25f}, 1, infinity}, {{1e-25f, -1e-25f}, 1, 0}, {{1e-25f, -1e-25f}, 1e9, infinity},
                         {{1e-40f, -1e-40f}, 1e9, infinity}, {{1, 3}, 1e9, infinity}, {{3e38f, -3e38f}, 1e9, infinity},
                         {{2}, 1e9, nan},         {{0}, 1e9, nan},           {{3e38f}, 1e9, nan}};
    for (const extent n : {2, 6, 600, 17000}) {
        CAPTURE(n);
        for (const variance& v : all) {
            CAPTURE(v.elements[0]);
            CAPTURE(v.correction);
            for (const double correction : {v.correction, v.correction > 1 ? static_cast<double>(n) : v.correction}) {
                for (const double got : variances_of<X>(device, v.elements, n, correction))
                    CHECK((std::isnan(v.want) ? std::isnan(got) : got == v.want || (v.want == 0 && got == 1)));
            }
        }
        // The sum of the squares is beyond float's range, and the variance is not.
        const double large = static_cast<double>(static_cast<float>(static_cast<X>(0x1p63f))), want = large * large;
        for (const double got : variances_of<X>(device, {0x1p63f, -0x1p63f}, n, 0)) CHECK(got == want);
    }
    for (const double got : variances_of<X>(device, {1.5f}, 1, 1)) CHECK(std::isnan(got));
    for (const double got : variances_of<X>(device, {1.5f}, 1, 3)) CHECK(std::isnan(got));
}

template <class X, class Y, class Device>
void running_sums(Device& device, const ht::shape<3>& s, bool is_reversed, ht::write_mode mode) {
    CAPTURE(s);
    CAPTURE(is_reversed);
    support::random data(7);
    const guarded<X> x(data.normals<X>(s.size()));
    const guarded<Y> y(std::vector<Y>(static_cast<std::size_t>(s.size()), static_cast<Y>(0.25f)));
    std::vector<double> want(static_cast<std::size_t>(s.size())), magnitudes(want.size());
    std::vector<X> absolute;
    for (extent i = 0; i < s.size(); ++i) absolute.push_back(static_cast<X>(std::fabs(static_cast<float>(x[i]))));
    ht::reference::running_sum(x.const_view(s), is_reversed, ht::view<double, 3>(want.data(), s));
    ht::reference::running_sum(ht::const_view<X, 3>(absolute.data(), s), is_reversed,
                               ht::view<double, 3>(magnitudes.data(), s));
    ht::kernel::axis_reduction<Device>::accumulate(
        device, ht::kernel::running_sum<X, Y>{x.data(), s, y.data(), is_reversed, mode});
    support::comparison c;
    for (extent i = 0; i < s.size(); ++i) {
        const auto k = static_cast<std::size_t>(i);
        const double value = want[k] + (mode == ht::write_mode::add ? 0.25 : 0);
        // At most 32 neighbours are added up in float, in at most five steps; all other sums are in double.
        const double error = support::gamma(5) * magnitudes[k] + 2 * support::u * (std::fabs(want[k]) + 0.25);
        c.expect(static_cast<double>(y[i]), value, support::rounded<Y>(value, error));
    }
    CHECK_MESSAGE(c.within(), c);
    CHECK(y.intact());
}
template <class X, class Y, class Device>
void every_running_sum(Device& device) {
    for (const bool is_reversed : {false, true}) {
        for (const auto mode : {ht::write_mode::overwrite, ht::write_mode::add}) {
            running_sums<X, Y>(device, {3, 70, 1}, is_reversed, mode);
            running_sums<X, Y>(device, {1, 1030, 1}, is_reversed, mode);
            running_sums<X, Y>(device, {3, 1088, 1}, is_reversed, mode);
            running_sums<X, Y>(device, {2, 9, 7}, is_reversed, mode);
            running_sums<X, Y>(device, {1, 3, 1200}, is_reversed, mode);
        }
    }
}

}  // namespace axis_checks
