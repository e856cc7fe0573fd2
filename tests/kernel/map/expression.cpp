// SPDX-License-Identifier: MIT
/// \file
/// The expressions that lambdas become, and their values.
#include <cmath>
#include <limits>
#include <type_traits>

#include <doctest/doctest.h>

#include <halftone/kernel/map/evaluate.hpp>
#include <halftone/kernel/map/reference.hpp>

namespace kernel_map_expression_tests {

namespace ht = halftone;
namespace sym = ht::symbolic;
namespace op = ht::symbolic::op;

template <class T, class U>
constexpr bool is(const U&) {
    return std::is_same_v<T, U>;
}

constexpr sym::argument<0> x;
constexpr sym::argument<1> y;

double value(const auto& e, double a, double b = 0) {
    const double arguments[] = {a, b};
    return ht::reference::evaluate(e, arguments);
}

struct cube {
    HALFTONE_HD float operator()(float a) const { return a * a * a; }
};

TEST_CASE("expression: a lambda becomes a type, its numbers constants") {
    const float k = 3;
    const auto e = ht::trace<2>([k](auto a, auto b) { return a * b + k * ht::tanh(a); });
    using product = sym::binary<op::multiply, sym::argument<0>, sym::argument<1>>;
    using scaled = sym::binary<op::multiply, sym::constant, sym::unary<op::tanh, sym::argument<0>>>;
    CHECK(is<sym::binary<op::add, product, scaled>>(e));
    CHECK(std::is_trivially_copyable_v<decltype(e)>);
    CHECK(e.right.left.value == 3.0f);
    CHECK(value(e, 0.5, 2) == doctest::Approx(1 + 3 * std::tanh(0.5)));

    static_assert(ht::expression<decltype(e)>);
    static_assert(!ht::expression<float>);
    static_assert(is<sym::constant>(ht::trace<1>([](auto) { return 2; })));
    static_assert(ht::trace<0>([] { return 0.5; }).value == 0.5f);
    static_assert(
        is<ht::pack<sym::argument<1>, sym::constant>>(ht::trace<2>([](auto, auto b) { return ht::results(b, 1); })));
}

TEST_CASE("expression: numbers of other types are constants, unqualified names are found") {
    CHECK(value(ht::trace<1>([](auto a) { return 2 * a + 0.25 - a / ht::bfloat16(4.0f); }), 1) == 2);
    CHECK(value(ht::trace<1>([](auto a) { return max(a, 0) + min(1.0, exp(a)); }), 0) == 1);
}

TEST_CASE("expression: zeros and ones of the type vanish") {
    constexpr sym::zero zero;
    constexpr sym::one one;
    static_assert(is<sym::argument<0>>(x + zero) && is<sym::argument<0>>(zero + x) && is<sym::argument<0>>(x - zero));
    static_assert(is<sym::unary<op::negate, sym::argument<0>>>(zero - x));
    static_assert(is<sym::zero>(zero * x) && is<sym::zero>(x * zero) && is<sym::zero>(zero / x) &&
                  is<sym::zero>(-zero));
    static_assert(is<sym::argument<0>>(one * x) && is<sym::argument<0>>(x * one) && is<sym::argument<0>>(x / one));
    static_assert((one + one).value == 2 && (-one).value == -1 && (2.0f * one * 3 - one + zero).value == 5);
    static_assert(is<sym::zero>(ht::where(x < y, zero, zero)));
    // The other factor does not appear in the branch that is zero.
    static_assert(is<sym::zero>((y * ht::where(x < 0, zero, x)).yes) &&
                  is<sym::zero>((ht::where(x < 0, x, zero) * y).no));
}

TEST_CASE("expression: short forms where a value becomes one of 16 bits, but not below a sum") {
    using ht::bfloat16, ht::float16, ht::float8_e5m2;
    using gelu = sym::unary<op::gelu, sym::argument<0>>;
    using short_gelu = sym::unary<op::short_form<op::gelu, bfloat16>, sym::argument<0>>;
    const auto e = ht::gelu(x);
    static_assert(is<gelu>(sym::shorten<float>(e)) && is<gelu>(sym::shorten<double>(e)));
    static_assert(is<short_gelu>(sym::shorten<bfloat16>(e)) && is<short_gelu>(sym::shorten<float8_e5m2>(e)));
    static_assert(
        is<sym::unary<op::short_form<op::gelu, float16>, sym::argument<0>>>(sym::shorten<float16>(e)));
    static_assert(is<sym::binary<op::multiply, short_gelu, sym::argument<1>>>(sym::shorten<bfloat16>(e * y)));
    static_assert(is<sym::unary<op::negate, short_gelu>>(sym::shorten<bfloat16>(-e)));
    static_assert(is<std::remove_const_t<decltype(e + y)>>(sym::shorten<bfloat16>(e + y)));
    static_assert(is<std::remove_const_t<decltype(ht::tanh(e))>>(sym::shorten<bfloat16>(ht::tanh(e))));
    // The inner function is the argument of another one, so that nothing is known about it.
    static_assert(is<sym::unary<op::short_form<op::gelu, bfloat16>, gelu>>(sym::shorten<bfloat16>(ht::gelu(e))));
    static_assert(is<sym::binary<op::multiply, sym::argument<1>,
                                 sym::unary<op::short_form<op::gelu_derivative, bfloat16>, sym::argument<0>>>>(
        sym::shorten<bfloat16>(y * ht::derivative<0>(e))));
}

TEST_CASE("expression: the inputs that are read") {
    static_assert(ht::reads<0, decltype(ht::where(x < 1, y, y))> && ht::reads<1, decltype(ht::where(x < 1, y, 2))>);
    static_assert(!ht::reads<1, decltype(ht::gelu(x) + 1)> && ht::reads<1, decltype(ht::opaque(cube{})(y))>);
    static_assert(ht::reads<1, ht::pack<sym::argument<0>, sym::argument<1>>> &&
                  !ht::reads<2, ht::pack<sym::argument<0>>>);
    static_assert(ht::reads<0, decltype(ht::where(!(y < 1 || x < 1), 1, y))>);
}

TEST_CASE("expression: conditions") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto holds = [](const auto& condition, double a, double b) {
        return value(ht::where(condition, 1, 0), a, b) == 1;
    };
    for (const double a : {-1.0, 0.0, 1.0, nan}) {
        for (const double b : {-1.0, 0.0, 1.0, nan}) {
            CHECK(holds(x < y, a, b) == (a < b));
            CHECK(holds(x <= y, a, b) == (a <= b));
            CHECK(holds(x > y, a, b) == (a > b));
            CHECK(holds(x >= y, a, b) == (a >= b));
            CHECK(holds(x == y, a, b) == (a == b));
            CHECK(holds(x != y, a, b) == (a != b));
            CHECK(holds(!(x < y), a, b) == !(a < b));
            CHECK(holds(x < y && x < 0, a, b) == (a < b && a < 0));
            CHECK(holds(x < y || 0 < x, a, b) == (a < b || 0 < a));
        }
    }
}

TEST_CASE("expression: definitions of the functions") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    CHECK(value(ht::sigmoid(x), 0.5) == doctest::Approx(1 / (1 + std::exp(-0.5))));
    CHECK(value(ht::sigmoid(x), -800) == 0);
    CHECK(value(ht::silu(x), 2) == doctest::Approx(2 / (1 + std::exp(-2.0))));
    const double tanh_form =
        0.5 * 1.5 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (1.5 + 0.044715 * 1.5 * 1.5 * 1.5)));
    CHECK(value(ht::gelu(x), 1.5) == doctest::Approx(tanh_form).epsilon(1e-14));
    CHECK(value(ht::rsqrt(x), 16) == 0.25);
    CHECK(value(ht::square(x) + ht::sqrt(x) + ht::abs(-x) + ht::sign(-x), 4) == 16 + 2 + 4 - 1);
    CHECK(value(ht::relu(x), -2) == 0);
    CHECK(value(ht::log(ht::exp(x)), 0.75) == doctest::Approx(0.75));
    CHECK(std::isnan(value(ht::relu(x), nan)));
    for (const double a : {1.0, nan}) {
        for (const double b : {2.0, nan}) {
            const bool is_number = !std::isnan(a) && !std::isnan(b);
            CHECK((is_number ? value(ht::min(x, y), a, b) == 1 : std::isnan(value(ht::min(x, y), a, b))));
            CHECK((is_number ? value(ht::max(x, y), a, b) == 2 : std::isnan(value(ht::max(x, y), a, b))));
        }
    }
}

TEST_CASE("expression: an opaque functor within a lambda") {
    const auto e = ht::trace<1>([](auto a) { return 1 + ht::opaque(cube{})(2 * a); });
    CHECK(value(e, 1.5) == 28);
}

}  // namespace kernel_map_expression_tests
