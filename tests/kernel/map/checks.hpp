// SPDX-License-Identifier: MIT
/// \file
/// Tests of maps and their gradients, for every device.
///
///     map_checks::functions_within_bounds(device);
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/map/map.hpp>
#include <halftone/kernel/map/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/tensor/rearrange.hpp>

#include "kernel/map/bounded.hpp"
#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace map_checks {

namespace ht = halftone;
using ht::extent;
using ht::write_mode;
using support::bounded;
using support::guarded;

inline const float infinity = std::numeric_limits<float>::infinity();
inline const float nan_value = std::numeric_limits<float>::quiet_NaN();

template <class T>
double wide(T value) {
    return static_cast<double>(static_cast<float>(value));
}

/// One expression of one input, over numbers of the given range.
template <class Device, class F>
void function_within_bounds(Device& device, const std::string& name, const F& f, double low, double high) {
    CAPTURE(name);
    support::random data{1};
    std::vector<float> values(1009);
    for (float& value : values) value = static_cast<float>(data.uniform(low, high));
    const guarded<float> x(values, 1);
    const auto e = ht::trace<1>(f);
    const guarded<float> y(x.size(), 3);
    ht::map(device, f, x.view(), y.view());
    support::comparison c;
    for (extent i = 0; i < x.size(); ++i) {
        const bounded exact[] = {wide(x[i])};
        const bounded want = ht::scalar::evaluate(e, exact);
        c.expect(wide(y[i]), want.value, want.error);
    }
    CHECK_WITHIN(c);
    CHECK(y.intact());
}

template <class Device>
void functions_within_bounds(Device& device) {
    function_within_bounds(
        device, "arithmetic", [](auto x) { return (2 * x - 1) / (x * x + 0.5f) - -x; }, -3, 3);
    function_within_bounds(
        device, "exp", [](auto x) { return ht::exp(x); }, -20, 20);
    function_within_bounds(
        device, "log", [](auto x) { return ht::log(x); }, 0.01, 1000);
    function_within_bounds(
        device, "sqrt", [](auto x) { return ht::sqrt(x) + ht::rsqrt(x); }, 0.01, 1000);
    function_within_bounds(
        device, "tanh", [](auto x) { return ht::tanh(x); }, -5, 5);
    function_within_bounds(
        device, "sigmoid", [](auto x) { return ht::sigmoid(x); }, -30, 30);
    function_within_bounds(
        device, "silu", [](auto x) { return ht::silu(x); }, -20, 10);
    function_within_bounds(
        device, "gelu", [](auto x) { return ht::gelu(x); }, -9, 6);
    function_within_bounds(
        device, "pieces", [](auto x) { return ht::square(ht::abs(x)) + ht::relu(x) * ht::sign(x); }, -3, 3);
    function_within_bounds(
        device, "choices",
        [](auto x) { return ht::where((x < 0.5 && x > -1) || x >= 2, x, ht::max(2, ht::min(x, 1.5) * x)); }, -3, 3);
    function_within_bounds(
        device, "slopes",
        [](auto x) {
            const auto e = ht::tanh(x) + ht::sigmoid(x) + ht::silu(x) + ht::gelu(x);
            return ht::derivative<0>(e);
        },
        -4, 4);
}

/// Results of 16 bits, in one kernel, with short forms; expressions that would cancel are computed as exactly as in float.
struct short_forms {
    constexpr auto operator()(auto x, auto z) const {
        return ht::results(ht::gelu(x), ht::silu(x), -ht::silu(x) * z, ht::gelu(x) - 0.5f * x);
    }
};

/// The gradient of f with respect to its first input, with inputs and gradients in T.
template <class T, class Device, class F>
void short_gradient_within_bounds(Device& device, const F& f, const guarded<T>& x, const guarded<T>& z) {
    const auto e = ht::make_pack(ht::trace<2>(f));
    const auto slope = ht::symbolic::shorten<T>(ht::detail::gradient_expression<0, 2>(e));
    const guarded<T> dx(x.size());
    ht::kernel::map<Device>::backward(device, e, ht::make_pack(z.const_view()),
                                      ht::make_pack(x.const_view(), z.const_view()),
                                      ht::make_pack(ht::kernel::gradient{dx.view(), write_mode::overwrite},
                                                    ht::kernel::no_gradient{}));
    support::comparison c;
    for (extent i = 0; i < x.size(); ++i) {
        const bounded at[] = {wide(x[i]), wide(z[i]), wide(z[i])};
        const bounded want = ht::scalar::evaluate(slope, at);
        c.expect(wide(dx[i]), want.value, support::rounded<T>(want.value, want.error));
    }
    CHECK_WITHIN(c);
    CHECK(dx.intact());
}

template <class T, class Device>
void short_forms_within_bounds(Device& device) {
    support::random data{5};
    const extent size = 1009;
    const guarded<T> x(size), z(data.normals<T>(size));
    const guarded<T> y[] = {guarded<T>(size), guarded<T>(size), guarded<T>(size), guarded<T>(size)};
    for (extent i = 0; i < size; ++i) x[i] = T(static_cast<float>(data.uniform(-9, 7)));
    ht::map(device, short_forms{}, x.view(), z.view(), y[0].view(), y[1].view(), y[2].view(), y[3].view());
    const auto e = ht::trace<2>(short_forms{});
    const auto check = [&]<std::size_t K>(std::integral_constant<std::size_t, K>) {
        CAPTURE(K);
        const auto shortened = ht::symbolic::shorten<T>(e.template at<K>());
        support::comparison c;
        for (extent i = 0; i < size; ++i) {
            const bounded at[] = {wide(x[i]), wide(z[i])};
            const bounded want = ht::scalar::evaluate(shortened, at);
            c.expect(wide(y[K][i]), want.value, support::rounded<T>(want.value, want.error));
        }
        CHECK_WITHIN(c);
        CHECK(y[K].intact());
    };
    check(std::integral_constant<std::size_t, 0>{});
    check(std::integral_constant<std::size_t, 1>{});
    check(std::integral_constant<std::size_t, 2>{});
    check(std::integral_constant<std::size_t, 3>{});
    short_gradient_within_bounds<T>(device, [](auto a, auto) { return ht::gelu(a); }, x, z);
    short_gradient_within_bounds<T>(device, [](auto a, auto b) { return ht::silu(a) * b; }, x, z);
}

struct mixture {
    float k;
    constexpr auto operator()(auto x, auto y) const { return x * y + k * ht::tanh(x); }
};

/// Two devices with different numbers of threads or schedules: results have the same bits and are within their bounds.
template <class X, class Y, class T, class Device>
void types_within_bounds(Device& first, Device& second, extent size, extent x_offset, extent y_offset) {
    CAPTURE(size);
    CAPTURE(x_offset);
    support::random data{2};
    const mixture f{-1.5f};
    const guarded<X> x(data.normals<X>(size), x_offset);
    const guarded<Y> y(data.normals<Y>(size), y_offset);
    const guarded<T> one(size, 2 * y_offset), two(size, 3);
    ht::map(first, f, x.const_view(), y.view(), one.view());
    ht::map(second, f, x.view(), y.const_view(), two.view());
    CHECK(one.same_bits(two));
    CHECK(one.intact());
    support::comparison c;
    const auto e = ht::trace<2>(f);
    for (extent i = 0; i < size; ++i) {
        const bounded exact[] = {wide(x[i]), wide(y[i])};
        const bounded want = ht::scalar::evaluate(e, exact);
        c.expect(wide(one[i]), want.value, support::rounded<T>(want.value, want.error));
    }
    CHECK_WITHIN(c);
}

/// Comparisons, min, max and relu treat NaN and zeros as the definition does.
template <class Device>
void nan_and_zeros(Device& device) {
    const std::vector<float> values = {0.0f, -0.0f, 1.0f, -1.0f, infinity, -infinity, nan_value, 0x1p-149f};
    std::vector<float> a, b;
    for (const float x : values) {
        for (const float y : values) a.push_back(x), b.push_back(y);
    }
    const guarded<float> x(a), y(b);
    const auto f = [](auto p, auto q) {
        return ht::results(ht::min(p, q), ht::max(p, q), ht::relu(p),
                           ht::where(p < q, 1, 0) + ht::where(p <= q, 2, 0) + ht::where(p == q, 4, 0),
                           ht::where(p != q, 1, 0) + ht::where(!(p > q), 2, 0) + ht::where(p >= q || q < 0, 4, 0));
    };
    const auto e = ht::trace<2>(f);
    const guarded<float> out0(x.size()), out1(x.size()), out2(x.size()), out3(x.size()), out4(x.size());
    ht::map(device, f, x.view(), y.view(), out0.view(), out1.view(), out2.view(), out3.view(), out4.view());
    for (extent i = 0; i < x.size(); ++i) {
        const float at[] = {x[i], y[i]};
        const auto agrees = [&](const auto& expression, float got) {
            const float want = ht::scalar::evaluate(expression, at);
            return got == want || (std::isnan(got) && std::isnan(want));
        };
        CHECK(agrees(e.template at<0>(), out0[i]));
        CHECK(agrees(e.template at<1>(), out1[i]));
        CHECK(agrees(e.template at<2>(), out2[i]));
        CHECK(agrees(e.template at<3>(), out3[i]));
        CHECK(agrees(e.template at<4>(), out4[i]));
    }
}

template <class Device>
void rows_columns_scalars(Device& device) {
    const extent rows = 37, columns = 53, pitch = 60;
    support::random data{3};
    // Integers: exact in any order, and compared for equality.
    const guarded<float> x(data.integers<float>(rows * pitch, 100)), column(data.integers<float>(columns, 100)),
        one(data.integers<float>(1, 100));
    const auto f = [](auto a, auto b, auto c) { return a * b + c; };
    const guarded<float> out(rows * pitch);
    ht::map(device, f, ht::view<float, 2>(x.data(), {rows, columns}, {pitch, 1}), column.view(),
            one.view(ht::shape<0>{}), ht::view<float, 2>(out.data(), {rows, columns}, {pitch, 1}));
    std::int64_t wrong = 0;
    for (extent i = 0; i < rows; ++i) {
        for (extent j = 0; j < pitch; ++j) {
            const float got = out[i * pitch + j];
            wrong += j < columns ? got != x[i * pitch + j] * column[j] + one[0] : !std::isnan(got);
        }
    }
    CHECK(wrong == 0);

    // Only the rows have a stride.
    const guarded<float> dense(rows * columns);
    ht::map(
        device, [](auto a) { return a + 1; }, ht::view<float, 2>(x.data(), {rows, columns}, {pitch, 1}),
        dense.view(ht::shape<2>{rows, columns}));
    for (extent i = 0; i < dense.size(); ++i) wrong += dense[i] != x[i / columns * pitch + i % columns] + 1;
    CHECK(wrong == 0);

    // Leading axes merged, in place.
    const ht::view<float, 3> whole(out.data(), {2, 3, columns});
    for (extent i = 0; i < whole.size(); ++i) whole.data()[i] = x[i];
    ht::map(
        device, [](auto a, auto b) { return a - b; }, whole, column.view(), whole);
    for (extent i = 0; i < whole.size(); ++i) wrong += out[i] != x[i] - column[i % columns];
    CHECK(wrong == 0);
}

template <class Device>
void long_rows(Device& device) {
    const extent rows = 2, columns = 50021;
    support::random data{4};
    const guarded<float> x(data.integers<float>(rows * columns, 100)), column(data.integers<float>(columns, 100));
    const guarded<float> out(rows * columns);
    const ht::shape<2> shape{rows, columns};
    ht::map(
        device, [](auto a, auto b) { return a - b; }, x.view(shape), column.view(), out.view(shape));
    std::int64_t wrong = 0;
    for (extent i = 0; i < x.size(); ++i) wrong += out[i] != x[i] - column[i % columns];
    CHECK(wrong == 0);
    CHECK(out.intact());
}

/// Functions that call <cmath> for each lane on a CPU: their errors are those stated in kernel/map/evaluate.hpp and
/// kernel/map/expression/scalar.hpp.
template <class Device>
void functions_of_cmath(Device& device) {
    support::random data{8};
    const extent size = 4099;
    const guarded<float> x(data.normals<float>(size, 9)), y(data.normals<float>(size, 3)), out(5 * size);
    const auto part = [&](extent i) { return ht::view<float, 1>(out.data() + i * size, {size}); };
    ht::map(
        device,
        [](auto a, auto b) {
            return ht::results(ht::sinh(a), ht::cosh(a), ht::tan(a), ht::pow(ht::abs(a), b), ht::atan2(a, b));
        },
        x.view(), y.view(), part(0), part(1), part(2), part(3), part(4));
    support::comparison c;
    for (extent i = 0; i < size; ++i) {
        const double a = wide(x[i]), b = wide(y[i]);
        const double want[] = {std::sinh(a), std::cosh(a), std::tan(a), std::pow(std::fabs(a), b), std::atan2(a, b)};
        for (extent k = 0; k < 5; ++k)
            c.expect(wide(out[k * size + i]), want[k], 4 * 0x1p-23 * std::fabs(want[k]) + 0x1p-147);
    }
    CHECK_WITHIN(c);
}

struct saturate {
    float limit;
    HALFTONE_HD float operator()(float x, float scale) const { return x * scale > limit ? limit : x * scale; }
};

template <class Device>
void functors_constants_tensors(Device& device) {
    support::random data{5};
    const guarded<ht::bfloat16> x(data.integers<ht::bfloat16>(101, 20));
    const guarded<ht::bfloat16> scaled(101);
    const guarded<float> shifted(101);
    const saturate f{7};
    ht::map(device, ht::opaque(f), x.view(), x.view(), scaled.view());
    for (extent i = 0; i < 101; ++i)
        CHECK(wide(scaled[i]) == wide(f(static_cast<float>(x[i]), static_cast<float>(x[i]))));
    ht::map(
        device, [f](auto a) { return ht::results(ht::opaque(f)(a + 1, 2), a - 1); }, x.view(), scaled.view(),
        shifted.view());
    for (extent i = 0; i < 101; ++i) {
        CHECK(wide(scaled[i]) == wide(f(static_cast<float>(x[i]) + 1, 2)));
        CHECK(shifted[i] == static_cast<float>(x[i]) - 1);
    }
    ht::tensor<float, 2> t{device.memory(), {3, 5}};
    ht::map(
        device, [] { return 2.5f; }, t);
    ht::map(
        device, [](auto a) { return a + 1; }, t, t);
    std::vector<float> values(15);
    device.memory().read(values.data(), t.data(), values.size() * sizeof(float));
    for (const float value : values) CHECK(value == 3.5f);
    ht::map(
        device, [](auto a) { return a; }, ht::view<float, 2>(nullptr, {0, 5}), ht::view<float, 2>(nullptr, {0, 5}));
}

/// x y + b into a part of `out`, all with different strides, compared with the definition; then in place.
template <class T, class Device, class X, class Y, class B, class Out>
void strided_against_definition(Device& device, const X& x, const Y& y, const B& b, const Out& out, const guarded<T>& memory) {
    const auto e = ht::trace<3>([](auto p, auto q, auto r) { return p * q + r; });
    const guarded<T> before(std::vector<T>(memory.data(), memory.data() + memory.size()));
    ht::map(device, [](auto p, auto q, auto r) { return p * q + r; }, x, y, b, out);
    std::vector<T> got(memory.data(), memory.data() + memory.size());
    std::copy(before.data(), before.data() + before.size(), memory.data());
    ht::reference::map(ht::make_pack(e), ht::make_pack(out), ht::make_pack(x, y, b));
    bool same = memory.intact();
    for (extent i = 0; i < memory.size(); ++i) same = same && wide(got[static_cast<std::size_t>(i)]) == wide(memory[i]);
    CHECK(same);  // integers: exactly
    std::copy(before.data(), before.data() + before.size(), memory.data());
}

/// Operands with any strides: transposed, with steps, flipped, expanded; into parts of a larger tensor.
template <class T, class Device>
void strided(Device& device) {
    using ht::axes, ht::shape;
    support::random data{5};
    const guarded<T> x(data.integers<T>(4 * 9 * 130, 9)), memory(data.integers<T>(4 * 9 * 130, 9));
    const guarded<float> y(data.integers<float>(4 * 9 * 130, 9));
    for (const extent rows : {1, 3, 9}) {
        for (const extent columns : {1, 5, 64, 130}) {
            CAPTURE(rows);
            CAPTURE(columns);
            const shape<3> s{4, rows, columns};
            const auto b = ht::expand(y.const_view(shape<2>{rows, 1}), s);
            const auto turned = ht::permute(x.const_view(shape<3>{columns, 4, rows}), axes<1, 2, 0>);
            const auto flipped = ht::flip(y.const_view(s), axes<0, 2>);
            strided_against_definition<T>(device, turned, flipped, b, memory.view(s), memory);
            strided_against_definition<T>(device, x.const_view(s), y.const_view(s), b, memory.view(s), memory);
            strided_against_definition<T>(device, turned, ht::expand(y.const_view(shape<1>{columns}), s), b,
                                          ht::transpose(memory.view(shape<3>{4, columns, rows})), memory);
            if (columns < 64) continue;
            const auto some = ht::slice(memory.view(s), axes<-1>, 1, 64, 2);
            const auto part = ht::slice(x.const_view(s), axes<2>, 0, 32);
            strided_against_definition<T>(device, part, ht::slice(flipped, axes<2>, 3, 35),
                                          ht::slice(b, axes<2>, 0, 32), some, memory);
            strided_against_definition<T>(device, ht::const_view<T, 3>(some), ht::slice(flipped, axes<2>, 3, 35),
                                          ht::slice(b, axes<2>, 0, 32), some, memory);  // in place
        }
    }
}

template <class Device>
void refuses(Device& device) {
    std::vector<float> memory(100);
    const auto view = [&](auto... extents) { return ht::view<float, sizeof...(extents)>(memory.data(), {extents...}); };
    const auto add = [](auto a, auto b) { return a + b; };
    CHECK_THROWS_WITH_AS(ht::map(device, add, view(3, 4), view(4, 3), view(3, 4)),
                         "map: input 1 is (4, 3), the output (3, 4)", ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::map(device, add, view(3, 4), view(3), view(3, 4)),
                         "map: input 1 has 3 values, the output (3, 4) has 4 columns", ht::shape_error);
    // The layout of operations on tapes, whose variables are contiguous.
    using map = ht::kernel::map<Device>;
    const auto identity = ht::make_pack(ht::symbolic::argument<0>{});
    CHECK_THROWS_WITH_AS(
        map::run(device, identity, ht::make_pack(view(4)), ht::make_pack(ht::const_view<float, 1>(memory.data(), {4}, {2}))),
        "map: input 0 (4) does not have contiguous rows at one distance; its strides are (2)", ht::shape_error);
    CHECK_THROWS_AS(ht::map(device, add, ht::transpose(view(3, 4)), view(3, 4), view(3, 4)), ht::shape_error);
    CHECK_THROWS_AS(ht::map(device, add, view(3, 4), view(3, 4), ht::expand(view(1, 4), ht::shape<2>{3, 4})), ht::shape_error);
    CHECK_THROWS_AS(ht::map(
                        device, [](auto a) { return ht::results(a, a); }, view(4), view(4), view(5)),
                    ht::shape_error);
}

/// gelu(x s + b) y, with x and y for each element, b for each column, and a scalar s: all kinds of gradients at once.
struct gated {
    constexpr auto operator()(auto x, auto y, auto b, auto s) const { return ht::gelu(x * s + b) * y; }
};

struct gradients {
    guarded<ht::bfloat16> x;
    guarded<float> y;
    guarded<float> b;
    guarded<ht::float16> s;
    gradients(extent size, extent columns, extent offset) : x(size, offset), y(size, offset), b(columns, offset), s(1) {
        for (extent i = 0; i < size; ++i) x[i] = ht::bfloat16(1.0f), y[i] = 1;
        for (extent i = 0; i < columns; ++i) b[i] = 1;
        s[0] = ht::float16(1.0f);
    }
    bool intact() const { return x.intact() && y.intact() && b.intact() && s.intact(); }
    bool same_bits(const gradients& other) const {
        return x.same_bits(other.x) && y.same_bits(other.y) && b.same_bits(other.b) && s.same_bits(other.s);
    }
};

/// A sum of terms with errors, through at most `depth` additions.
struct bounded_sum {
    double value = 0, error = 0, magnitude = 0;
    void add(const bounded& term) {
        value += term.value;
        error += term.error;
        magnitude += std::fabs(term.value) + term.error;
    }
    double bound(extent depth) const { return error + support::gamma(static_cast<double>(depth)) * magnitude; }
};

template <class T>
void expect_sum(support::comparison& c, T got, const bounded_sum& sum, double before, extent depth) {
    const double error = sum.bound(depth), total = sum.value + before;
    c.expect(wide(got), total, support::rounded<T>(total, error + support::u * (std::fabs(total) + error)));
}

/// Gradients of elements, columns and scalars in one pass: the same bits on both devices.
template <class Device>
void gradients_within_bounds(Device& first, Device& second, const ht::shape<2>& shape, extent offset = 1) {
    const auto expressions = ht::make_pack(ht::trace<4>(gated{}));
    const extent rows = shape[0], columns = shape[1];
    CAPTURE(rows);
    CAPTURE(columns);
    support::random data{6};
    const extent size = rows * columns;
    const guarded<ht::bfloat16> x(data.normals<ht::bfloat16>(size), offset),
        dz(data.normals<ht::bfloat16>(size, 1, 0.5), offset);
    const guarded<float> y(data.normals<float>(size, 1, 1), offset), b(data.normals<float>(columns), offset);
    const guarded<ht::float16> s(data.normals<ht::float16>(1, 0.1, 1.5));
    const auto inputs =
        ht::make_pack(x.const_view(shape), y.const_view(shape), b.const_view(), s.const_view(ht::shape<0>{}));
    const auto outputs = ht::make_pack(dz.const_view(shape));

    std::vector<bounded_sum> by_column(static_cast<std::size_t>(columns));
    bounded_sum all;
    std::vector<bounded> by_x, by_y;
    for (extent i = 0; i < size; ++i) {
        const extent j = i % columns;
        const bounded at[] = {wide(x[i]), wide(y[i]), wide(b[j]), wide(s[0]), wide(dz[i])};
        by_x.push_back(ht::scalar::evaluate(
            ht::symbolic::shorten<ht::bfloat16>(ht::detail::gradient_expression<0, 4>(expressions)), at));
        by_y.push_back(ht::scalar::evaluate(ht::detail::gradient_expression<1, 4>(expressions), at));
        by_column[static_cast<std::size_t>(j)].add(
            ht::scalar::evaluate(ht::detail::gradient_expression<2, 4>(expressions), at));
        all.add(ht::scalar::evaluate(ht::detail::gradient_expression<3, 4>(expressions), at));
    }

    for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
        const double before = mode == write_mode::add ? 1 : 0;
        const gradients one(size, columns, offset), two(size, columns, offset);
        for (const gradients* g : {&one, &two}) {
            Device& device = g == &one ? first : second;
            ht::kernel::map<Device>::backward(
                device, expressions, outputs, inputs,
                ht::make_pack(ht::kernel::gradient{g->x.view(shape), mode},
                              ht::kernel::gradient{g->y.view(shape), mode}, ht::kernel::gradient{g->b.view(), mode},
                              ht::kernel::gradient{g->s.view(ht::shape<0>{}), mode}));
            CHECK(g->intact());
        }
        CHECK(one.same_bits(two));

        support::comparison elements, columns_, scalar;
        for (extent i = 0; i < size; ++i) {
            bounded_sum of_x, of_y;
            of_x.add(by_x[static_cast<std::size_t>(i)]);
            of_y.add(by_y[static_cast<std::size_t>(i)]);
            expect_sum(elements, one.x[i], of_x, before, 0);
            expect_sum(elements, one.y[i], of_y, before, 0);
        }
        // At most one addition for each row and each piece of rows; at most one for each vector, and the rounding of the total.
        for (extent j = 0; j < columns; ++j)
            expect_sum(columns_, one.b[j], by_column[static_cast<std::size_t>(j)], before, 2 * rows);
        expect_sum(scalar, one.s[0], all, before, rows * ((columns + 3) / 4) + 1);
        CHECK_WITHIN(elements);
        CHECK_WITHIN(columns_);
        CHECK_WITHIN(scalar);
    }
}

/// Gradients that are absent or dropped, inputs that are not read, several results.
template <class Device>
void absent_gradients(Device& device) {
    const extent size = 77;
    support::random data{8};
    const guarded<float> x(data.integers<float>(size, 50)), p(data.integers<float>(size, 50)),
        q(data.integers<float>(size, 50));
    // x y and x + y: the gradient of y is p x + q, that of x reads y.
    const auto e = ht::trace<3>([](auto a, auto b, auto c) { return ht::results(a * b, a + b + c); });
    const ht::view<const float, 1> unread(nullptr, {size});
    const guarded<float> dy(size), dc(1);
    ht::kernel::map<Device>::backward(
        device, e, ht::make_pack(p.const_view(), q.const_view()),
        ht::make_pack(x.const_view(), unread, ht::view<const float, 0>(nullptr, {})),
        ht::make_pack(ht::kernel::no_gradient{}, ht::kernel::gradient{dy.view(), write_mode::overwrite},
                      ht::kernel::gradient{dc.view(ht::shape<0>{}), write_mode::overwrite}));
    float total = 0;
    for (extent i = 0; i < size; ++i) {
        CHECK(dy[i] == p[i] * x[i] + q[i]);
        total += q[i];
    }
    CHECK(dc[0] == total);
    // Dropped at run time: the same kernel, no memory for the results.
    const guarded<float> again(size);
    ht::kernel::map<Device>::backward(
        device, e, ht::make_pack(p.const_view(), q.const_view()),
        ht::make_pack(x.const_view(), unread, ht::view<const float, 0>(nullptr, {})),
        ht::make_pack(ht::kernel::no_gradient{}, ht::kernel::gradient{again.view(), write_mode::overwrite},
                      ht::kernel::gradient{ht::view<float, 0>(nullptr, {}), write_mode::add}));
    CHECK(again.same_bits(dy));
    CHECK(dy.intact());
}

/// The gradient of a bias does not read the bias, but needs its columns for the sums.
template <class Device>
void bias_gradient(Device& device) {
    const extent rows = 45, columns = 24;
    support::random data{9};
    const guarded<float> dy(data.integers<float>(rows * columns, 50), 0), db(columns);
    const ht::view<const float, 2> x(nullptr, {rows, columns});
    const ht::view<const float, 1> b(nullptr, {columns});
    ht::kernel::map<Device>::backward(
        device, ht::make_pack(ht::trace<2>([](auto p, auto q) { return p + q; })),
        ht::make_pack(dy.const_view(x.shape())), ht::make_pack(x, b),
        ht::make_pack(ht::kernel::no_gradient{}, ht::kernel::gradient{db.view(), write_mode::overwrite}));
    for (extent j = 0; j < columns; ++j) {
        float sum = 0;
        for (extent i = 0; i < rows; ++i) sum += dy[i * columns + j];
        CHECK(db[j] == sum);
    }
}

/// An input that is passed as two arguments: the second gradient is added to the first one.
template <class Device>
void gradients_in_one_place(Device& device) {
    const auto square = ht::make_pack(ht::trace<2>([](auto a, auto b) { return a * b; }));
    for (const extent size : {1, 4, 77, 300}) {
        support::random data{10};
        const guarded<float> x(data.integers<float>(size, 50)), p(data.integers<float>(size, 50)), dx(size);
        ht::kernel::map<Device>::backward(device, square, ht::make_pack(p.const_view()),
                                          ht::make_pack(x.const_view(), x.const_view()),
                                          ht::make_pack(ht::kernel::gradient{dx.view(), write_mode::overwrite},
                                                        ht::kernel::gradient{dx.view(), write_mode::add}));
        for (extent i = 0; i < size; ++i) CHECK(dx[i] == 2 * p[i] * x[i]);
        CHECK(dx.intact());
    }
}

template <class Device>
void steady_step_allocates_nothing(Device& device) {
    const extent rows = 64, columns = 300;
    ht::tensor<float, 2> x{device.memory(), {rows, columns}}, dx{device.memory(), {rows, columns}};
    ht::tensor<float, 1> b{device.memory(), {columns}}, db{device.memory(), {columns}};
    ht::map(
        device, [] { return 1; }, x);
    ht::map(
        device, [] { return 2; }, b);
    const auto step = [&] {
        const auto e = ht::make_pack(ht::trace<2>([](auto p, auto q) { return p * q; }));
        ht::kernel::map<Device>::backward(device, e, ht::make_pack(x.const_view()),
                                          ht::make_pack(x.const_view(), b.const_view()),
                                          ht::make_pack(ht::kernel::gradient{dx.view(), write_mode::overwrite},
                                                        ht::kernel::gradient{db.view(), write_mode::overwrite}));
    };
    step();
    const auto before = device.memory().usage().allocations();
    step();
    CHECK(device.memory().usage().allocations() == before);
    float one_dx = 0, one_db = 0;
    device.memory().read(&one_dx, dx.data() + 3 * columns + 4, sizeof one_dx);
    device.memory().read(&one_db, db.data() + 7, sizeof one_db);
    CHECK(one_dx == 2);
    CHECK(one_db == static_cast<float>(rows));
}

}  // namespace map_checks
