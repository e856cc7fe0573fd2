// SPDX-License-Identifier: MIT
/// \file
/// Pointwise operations on a tape: gradients compared with the definition, broadcast inputs, one variable as several arguments,
/// result types in regions.
#include <vector>

#include <doctest/doctest.h>

#include "autodiff/compare.hpp"
#include "autodiff/weigh.hpp"
#include "support/each_set.hpp"
#include "support/gradient_check.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace autodiff_pointwise_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::float16;
using support::guarded;
using support::matrix;
using support::tracked;
using doubles = std::vector<double>;

constexpr int rows = 5, columns = 19;
const ht::shape<2> shape{rows, columns};

/// y = x z + k tanh(x), and its gradients.
template <class Number>
struct definition {
    matrix<Number> y, dx, dz;

    definition(const matrix<Number>& x, const matrix<Number>& z, const matrix<Number>& dy, double k)
        : y(x), dx(x), dz(x) {
        for (std::size_t i = 0; i < x.values.size(); ++i) {
            const Number a = x.values[i], b = z.values[i], t = support::tanh(a), g = dy.values[i];
            y.values[i] = a * b + Number(k) * t;
            // A kernel's derivative of tanh is within five ulp of the exact derivative.
            dx.values[i] = g * (b + Number(k) * support::further_roundings(Number(1) - t * t, 10));
            dz.values[i] = g * a;
        }
    }
};

template <class T>
void within_bounds(ht::isa set) {
    ht::cpu device{{.threads = 2, .instruction_set = set}};
    support::random data(1);
    const guarded<T> x(data.normals<T>(rows * columns)), z(data.normals<T>(rows * columns)),
        dy(data.normals<T>(rows * columns));
    const float k = 0.75f;
    ht::tape tape{device};
    const auto a = tape.leaf(x.view(shape)), b = tape.leaf(z.view(shape));
    const auto y = ht::map(tape, [k](auto p, auto q) { return p * q + k * ht::tanh(p); }, a, b);
    const auto of = [](const guarded<T>& v) { return matrix<tracked>(rows, columns, v.data()); };
    const definition<tracked> want(of(x), of(z), of(dy), 0.75);
    autodiff_test::check_within(y.view(), want.y);
    tape.backward(autodiff_test::weigh(tape, y, dy.view()));
    autodiff_test::check_within(tape.gradient(a), want.dx);
    autodiff_test::check_within(tape.gradient(b), want.dz);
}

TEST_CASE("map: values and gradients within their bounds") {
    support::for_each_set([](ht::isa set) {
        within_bounds<float>(set);
        within_bounds<bfloat16>(set);
        within_bounds<float16>(set);
    });
}

TEST_CASE("map: the definition's gradients are central differences") {
    support::random data(2);
    const doubles x = data.normals<double>(rows * columns), z = data.normals<double>(rows * columns),
                  dy = data.normals<double>(rows * columns);
    const auto at = [&](const doubles& p, const doubles& q) {
        return definition<double>(matrix<double>(rows, columns, p.data()), matrix<double>(rows, columns, q.data()),
                                  matrix<double>(rows, columns, dy.data()), 0.75);
    };
    const auto loss = [&](const definition<double>& d) {
        double sum = 0;
        for (std::size_t i = 0; i < dy.size(); ++i) sum += d.y.values[i] * dy[i];
        return sum;
    };
    const definition<double> d = at(x, z);
    support::check_gradient([&](const doubles& p) { return loss(at(p, z)); }, x, d.dx.values);
    support::check_gradient([&](const doubles& p) { return loss(at(x, p)); }, z, d.dz.values);
}

struct integers {
    support::random data{3};
    guarded<float> x{data.integers<float>(rows * columns, 5)}, z{data.integers<float>(rows * columns, 5)},
        dy{data.integers<float>(rows * columns, 5)};
    guarded<float> row{data.integers<float>(columns, 5)}, one{data.integers<float>(1, 5)};
    ht::cpu device{{.threads = 2}};
    ht::tape<ht::cpu> tape{device};

    template <class Y>
    void backward(const Y& y) {
        tape.backward(autodiff_test::weigh(tape, y, dy.view()));
    }
    double at(const guarded<float>& v, int i) const { return static_cast<double>(v[i]); }
};

TEST_CASE("add, sub, mul, relu: exact on small integers") {
    integers f;
    const auto gradients = [&](const auto& function, auto value, auto dx, auto dz) {
        const auto x = f.tape.leaf(f.x.view(shape)), z = f.tape.leaf(f.z.view(shape));
        const auto y = function(x, z);
        for (int i = 0; i < rows * columns; ++i)
            REQUIRE(static_cast<double>(y.view().data()[i]) == value(f.at(f.x, i), f.at(f.z, i)));
        f.backward(y);
        for (int i = 0; i < rows * columns; ++i) {
            REQUIRE(static_cast<double>(f.tape.gradient(x).data()[i]) ==
                    f.at(f.dy, i) * dx(f.at(f.x, i), f.at(f.z, i)));
            REQUIRE(static_cast<double>(f.tape.gradient(z).data()[i]) ==
                    f.at(f.dy, i) * dz(f.at(f.x, i), f.at(f.z, i)));
        }
    };
    gradients([&](const auto& x, const auto& z) { return ht::add(f.tape, x, z); },
              [](double x, double z) { return x + z; }, [](double, double) { return 1; },
              [](double, double) { return 1; });
    gradients([&](const auto& x, const auto& z) { return ht::sub(f.tape, x, z); },
              [](double x, double z) { return x - z; }, [](double, double) { return 1; },
              [](double, double) { return -1; });
    gradients([&](const auto& x, const auto& z) { return ht::mul(f.tape, x, z); },
              [](double x, double z) { return x * z; }, [](double, double z) { return z; },
              [](double x, double) { return x; });
    gradients([&](const auto& x, const auto& z) { return ht::add(f.tape, ht::relu(f.tape, x), z); },
              [](double x, double z) { return (x > 0 ? x : 0) + z; }, [](double x, double) { return x > 0 ? 1 : 0; },
              [](double, double) { return 1; });
}

TEST_CASE("gelu and tanh: gradients within their bounds") {
    ht::cpu device{{.threads = 1}};
    const guarded<float> x(support::random(4).normals<float>(rows * columns, 2));
    ht::tape tape{device};
    const auto a = tape.leaf(x.view(shape));
    tape.backward(ht::sum(tape, ht::gelu(tape, a)));
    const matrix<tracked> at(rows, columns, x.data());
    autodiff_test::check_within(tape.gradient(a), each(at, [](const tracked& v) { return support::gelu_derivative(v); }));
    const auto b = tape.leaf(x.view(shape));
    tape.backward(ht::sum(tape, ht::tanh(tape, b)));
    const auto slope = [](const tracked& v) {
        return tracked(1 - std::tanh(v.value) * std::tanh(v.value)).rounded(10 * support::u);
    };
    autodiff_test::check_within(tape.gradient(b), each(at, slope));
}

TEST_CASE("one variable in several places of an operation has the sum of all its gradients") {
    integers f;
    const auto x = f.tape.leaf(f.x.view(shape));
    f.backward(ht::mul(f.tape, x, x));
    for (int i = 0; i < rows * columns; ++i)
        REQUIRE(static_cast<double>(f.tape.gradient(x).data()[i]) == 2 * f.at(f.x, i) * f.at(f.dy, i));

    const auto z = f.tape.leaf(f.z.view(shape));
    f.backward(ht::map(f.tape, [](auto a, auto b, auto c) { return a * b - 3 * c; }, z, z, z));
    for (int i = 0; i < rows * columns; ++i)
        REQUIRE(static_cast<double>(f.tape.gradient(z).data()[i]) == (2 * f.at(f.z, i) - 3) * f.at(f.dy, i));

    const auto row = f.tape.leaf(f.row.view());
    const auto one = f.tape.leaf(f.one.view(ht::shape<0>{}));
    const auto c = f.tape.constant(f.x.view(shape));
    f.backward(ht::map(
        f.tape, [](auto v, auto p, auto q, auto s, auto t) { return v * p + q * s + t; }, c, row, row, one, one));
    double of_one = 0;
    for (int j = 0; j < columns; ++j) {
        double of_row = 0;
        for (int i = 0; i < rows; ++i) {
            const int at = i * columns + j;
            of_row += f.at(f.dy, at) * (f.at(f.x, at) + f.at(f.one, 0));
            of_one += f.at(f.dy, at) * (f.at(f.row, j) + 1);
        }
        REQUIRE(static_cast<double>(f.tape.gradient(row).data()[j]) == of_row);
    }
    CHECK(static_cast<double>(f.tape.gradient(one).data()[0]) == of_one);
}

TEST_CASE("inputs that need no gradient get none, and the others the same bits") {
    integers f;
    const auto both = [&](bool second_is_learnt) {
        const auto x = f.tape.leaf(f.x.view(shape));
        const auto z = second_is_learnt ? f.tape.leaf(f.z.view(shape)) : f.tape.constant(f.z.view(shape));
        const auto row = second_is_learnt ? f.tape.leaf(f.row.view()) : f.tape.constant(f.row.view());
        f.backward(ht::map(f.tape, [](auto a, auto b, auto c) { return a * b + ht::gelu(a * c); }, x, z, row));
        return support::doubles(f.tape.gradient(x));
    };
    CHECK(both(true) == both(false));

    const auto c = f.tape.constant(f.x.view(shape));
    CHECK(!ht::mul(f.tape, c, c).wants_gradient());
    CHECK(f.tape.graph().records() == 0);
}

TEST_CASE("scalars add up: two losses become one") {
    integers f;
    const auto x = f.tape.leaf(f.x.view(shape));
    const auto a = ht::sum(f.tape, x), b = ht::sum(f.tape, ht::mul(f.tape, x, x));
    f.tape.backward(ht::add(f.tape, a, b));
    for (int i = 0; i < rows * columns; ++i)
        REQUIRE(static_cast<double>(f.tape.gradient(x).data()[i]) == 1 + 2 * f.at(f.x, i));
}

TEST_CASE("the result's type: the inputs' on a bare tape, PyTorch's category in a region") {
    using tape = ht::tape<ht::cpu>;
    using region = ht::region<ht::amp_bf16, tape>;
    using half = ht::variable<float16, 2>;
    using brain = ht::variable<bfloat16, 2>;
    using full = ht::variable<float, 2>;
    static_assert(
        std::is_same_v<decltype(ht::add(std::declval<tape&>(), std::declval<brain>(), std::declval<brain>())), brain>);
    static_assert(
        std::is_same_v<decltype(ht::add(std::declval<tape&>(), std::declval<brain>(), std::declval<full>())), full>);
    static_assert(
        std::is_same_v<decltype(ht::mul(std::declval<tape&>(), std::declval<brain>(), std::declval<half>())), full>);
    static_assert(std::is_same_v<decltype(ht::gelu(std::declval<region>(), std::declval<full>())), full>);
    static_assert(
        std::is_same_v<decltype(ht::add(std::declval<region>(), std::declval<half>(), std::declval<half>())), half>);
}

struct negate {
    using operation = ht::op::neg;
    ht::gradient_of<float, 1> dx, dy;
    void backward(ht::tape<ht::cpu>& tape) {
        if (!dy.is_there()) return;
        if (const auto to = tape.gradient_target(dx)) {
            for (ht::extent i = 0; i < dx.shape()[0]; ++i)
                to.data[i] = (to.mode == ht::write_mode::add ? to.data[i] : 0.0f) - dy.view()(i);
        }
        tape.finish(dy);
    }
};

TEST_CASE("a custom operation: a record with a backward function") {
    ht::cpu device{{.threads = 1}};
    const guarded<float> x(std::vector<float>{1, 2, 3});
    ht::tape tape{device};
    const auto apply = [&](const ht::variable<float, 1>& v) {
        auto y = tape.make<float>(v.shape(), v.wants_gradient());
        for (ht::extent i = 0; i < v.shape()[0]; ++i) y.view()(i) = -v.view()(i);
        tape.record(negate{ht::gradient_of(v), ht::gradient_of(y)});
        return y;
    };
    const auto leaf = tape.leaf(x.view());
    const auto y = apply(leaf);
    CHECK(y.view()(2) == -3);
    tape.backward(ht::sum(tape, ht::add(tape, ht::mul(tape, y, y), y)));
    for (int i = 0; i < 3; ++i) CHECK(tape.gradient(leaf)(i) == -(2 * y.view()(i) + 1));
}

TEST_CASE("pointwise: shapes that do not match") {
    integers f;
    const auto x = f.tape.constant(f.x.view(shape)), other = f.tape.constant(f.z.view(ht::shape<2>{columns, rows}));
    CHECK_THROWS_AS(ht::add(f.tape, x, other), ht::shape_error);
    CHECK_THROWS_AS(ht::mul(f.tape, x, f.tape.constant(f.z.view(ht::shape<1>{rows}))), ht::shape_error);
}

}  // namespace autodiff_pointwise_tests
