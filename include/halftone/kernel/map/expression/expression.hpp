// SPDX-License-Identifier: MIT
/// \file
/// Pointwise expressions as types: the result of calling a generic lambda with symbolic arguments.
///
///     auto e = ht::trace<2>([k](auto x, auto y) { return x * y + k * ht::tanh(x); });
///     // binary<add, binary<multiply, argument<0>, argument<1>>, binary<multiply, constant, unary<tanh, argument<0>>>>
///
/// An expression is plain data (node.hpp) and can be copied into a kernel. evaluate.simd.hpp (vectors) and scalar.hpp
/// (float, double) evaluate it; its derivative is another expression (derivative.hpp).
///
/// Operands of the operators and functions below are expressions, or numbers, which become constants of the type in
/// which the expression is evaluated. Comparisons give conditions, of which `where` chooses; they have no truth value
/// while the lambda is traced. Zeros and ones that are known by type, as derivatives make them, are simplified: 0 x to
/// 0 and 1 x to x.
#pragma once

#include <type_traits>
#include <utility>

#include <halftone/config.hpp>
#include <halftone/kernel/map/expression/node.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The operators and functions; the functions are also names in `halftone`.
namespace symbolic {

namespace detail {

template <class A>
HALFTONE_HD constexpr auto negated(const A& a) {
    if constexpr (is_zero<A>) {
        return a;
    } else if constexpr (is_constant<A>) {
        return negate(constant_of(a));
    } else {
        return unary<op::negate, A>{a};
    }
}

template <class A, class B>
HALFTONE_HD constexpr auto sum(const A& a, const B& b) {
    if constexpr (is_zero<A>) {
        return b;
    } else if constexpr (is_zero<B>) {
        return a;
    } else if constexpr (is_constant<A> && is_constant<B>) {
        return add(constant_of(a), constant_of(b));
    } else {
        return binary<op::add, A, B>{a, b};
    }
}

template <class A, class B>
HALFTONE_HD constexpr auto difference(const A& a, const B& b) {
    if constexpr (is_zero<A>) {
        return negated(b);
    } else if constexpr (is_zero<B>) {
        return a;
    } else if constexpr (is_constant<A> && is_constant<B>) {
        return add(constant_of(a), negate(constant_of(b)));
    } else {
        return binary<op::subtract, A, B>{a, b};
    }
}

template <class Condition, class A, class B>
HALFTONE_HD constexpr auto chosen(const Condition& condition, const A& yes, const B& no) {
    if constexpr (is_zero<A> && is_zero<B>) {
        return zero{};
    } else {
        return choice<Condition, A, B>{condition, yes, no};
    }
}

template <class A, class B>
HALFTONE_HD constexpr auto product(const A& a, const B& b) {
    if constexpr (is_zero<A> || is_zero<B>) {
        return zero{};
    } else if constexpr (is_one<A>) {
        return b;
    } else if constexpr (is_one<B>) {
        return a;
    } else if constexpr (is_constant<A> && is_constant<B>) {
        return multiply(constant_of(a), constant_of(b));
    } else if constexpr (masks<B>) {
        return chosen(b.condition, product(a, b.yes), product(a, b.no));
    } else if constexpr (masks<A>) {
        return chosen(a.condition, product(a.yes, b), product(a.no, b));
    } else {
        return binary<op::multiply, A, B>{a, b};
    }
}

template <class A, class B>
HALFTONE_HD constexpr auto quotient(const A& a, const B& b) {
    if constexpr (is_zero<A> || is_one<B>) {
        return a;
    } else {
        return binary<op::divide, A, B>{a, b};
    }
}

}  // namespace detail

template <expression A>
HALFTONE_HD constexpr auto operator-(const A& a) {
    return detail::negated(a);
}
template <class A, class B>
requires detail::operands<A, B> HALFTONE_HD constexpr auto operator+(const A& a, const B& b) {
    return detail::sum(detail::lift(a), detail::lift(b));
}
template <class A, class B>
requires detail::operands<A, B> HALFTONE_HD constexpr auto operator-(const A& a, const B& b) {
    return detail::difference(detail::lift(a), detail::lift(b));
}
template <class A, class B>
requires detail::operands<A, B> HALFTONE_HD constexpr auto operator*(const A& a, const B& b) {
    return detail::product(detail::lift(a), detail::lift(b));
}
template <class A, class B>
requires detail::operands<A, B> HALFTONE_HD constexpr auto operator/(const A& a, const B& b) {
    return detail::quotient(detail::lift(a), detail::lift(b));
}

template <class A, class B>
requires detail::operands<A, B> HALFTONE_HD constexpr auto operator<(const A& a, const B& b) {
    return comparison<op::less, detail::lifted<A>, detail::lifted<B>>{detail::lift(a), detail::lift(b)};
}
template <class A, class B>
requires detail::operands<A, B> HALFTONE_HD constexpr auto operator>(const A& a, const B& b) {
    return comparison<op::less, detail::lifted<B>, detail::lifted<A>>{detail::lift(b), detail::lift(a)};
}
template <class A, class B>
requires detail::operands<A, B> HALFTONE_HD constexpr auto operator<=(const A& a, const B& b) {
    return comparison<op::less_equal, detail::lifted<A>, detail::lifted<B>>{detail::lift(a), detail::lift(b)};
}
template <class A, class B>
requires detail::operands<A, B> HALFTONE_HD constexpr auto operator>=(const A& a, const B& b) {
    return comparison<op::less_equal, detail::lifted<B>, detail::lifted<A>>{detail::lift(b), detail::lift(a)};
}
template <class A, class B>
requires detail::operands<A, B> HALFTONE_HD constexpr auto operator==(const A& a, const B& b) {
    return comparison<op::equal, detail::lifted<A>, detail::lifted<B>>{detail::lift(a), detail::lift(b)};
}
template <class A, class B>
requires detail::operands<A, B> HALFTONE_HD constexpr auto operator!=(const A& a, const B& b) {
    return complement(a == b);
}
template <symbolic_condition A>
HALFTONE_HD constexpr auto operator!(const A& a) {
    return complement<A>(a);
}
template <symbolic_condition A, symbolic_condition B>
HALFTONE_HD constexpr auto operator&&(const A& a, const B& b) {
    return logical<op::both, A, B>{a, b};
}
template <symbolic_condition A, symbolic_condition B>
HALFTONE_HD constexpr auto operator||(const A& a, const B& b) {
    return logical<op::either, A, B>{a, b};
}

/// `yes` where the condition holds, otherwise `no`.
template <symbolic_condition Condition, class A, class B>
    requires(detail::operand<A>&& detail::operand<B>)
HALFTONE_HD constexpr auto where(const Condition& condition, const A& yes, const B& no) {
    return detail::chosen(condition, detail::lift(yes), detail::lift(no));
}

/// The smaller and the larger of two; NaN if either is NaN.
template <class A, class B>
requires detail::operands<A, B> HALFTONE_HD constexpr auto min(const A& a, const B& b) {
    return binary<op::minimum, detail::lifted<A>, detail::lifted<B>>{detail::lift(a), detail::lift(b)};
}
template <class A, class B>
requires detail::operands<A, B> HALFTONE_HD constexpr auto max(const A& a, const B& b) {
    return binary<op::maximum, detail::lifted<A>, detail::lifted<B>>{detail::lift(a), detail::lift(b)};
}
template <expression A>
HALFTONE_HD constexpr unary<op::abs, A> abs(const A& a) {
    return {a};
}
/// The sign: -1, 0 or 1.
template <expression A>
HALFTONE_HD constexpr unary<op::sign, A> sign(const A& a) {
    return {a};
}
template <expression A>
HALFTONE_HD constexpr unary<op::square, A> square(const A& a) {
    return {a};
}
template <expression A>
HALFTONE_HD constexpr unary<op::sqrt, A> sqrt(const A& a) {
    return {a};
}
/// 1 / sqrt(a).
template <expression A>
HALFTONE_HD constexpr unary<op::rsqrt, A> rsqrt(const A& a) {
    return {a};
}
template <expression A>
HALFTONE_HD constexpr unary<op::exp, A> exp(const A& a) {
    return {a};
}
/// exp(a) - 1, accurate also for small a.
template <expression A>
HALFTONE_HD constexpr unary<op::expm1, A> expm1(const A& a) {
    return {a};
}
template <expression A>
HALFTONE_HD constexpr unary<op::log, A> log(const A& a) {
    return {a};
}
/// log(1 + a), accurate also for small a.
template <expression A>
HALFTONE_HD constexpr unary<op::log1p, A> log1p(const A& a) {
    return {a};
}
template <expression A>
HALFTONE_HD constexpr auto log2(const A& a) {
    return 1.4426950408889634 * symbolic::log(a);
}
template <expression A>
HALFTONE_HD constexpr auto log10(const A& a) {
    return 0.43429448190325182 * symbolic::log(a);
}
template <expression A>
HALFTONE_HD constexpr auto reciprocal(const A& a) {
    return one{} / a;
}
/// log(1 + exp(a)).
template <expression A>
HALFTONE_HD constexpr unary<op::softplus, A> softplus(const A& a) {
    return {a};
}
template <expression A>
HALFTONE_HD constexpr unary<op::sinh, A> sinh(const A& a) {
    return {a};
}
template <expression A>
HALFTONE_HD constexpr unary<op::cosh, A> cosh(const A& a) {
    return {a};
}
template <expression A>
HALFTONE_HD constexpr unary<op::tan, A> tan(const A& a) {
    return {a};
}
/// a to the power b, as std::pow.
template <class A, class B>
requires detail::operands<A, B> HALFTONE_HD constexpr auto pow(const A& a, const B& b) {
    return binary<op::power, detail::lifted<A>, detail::lifted<B>>{detail::lift(a), detail::lift(b)};
}
/// The angle of the point (x, y), in (-pi, pi].
template <class Y, class X>
requires detail::operands<Y, X> HALFTONE_HD constexpr auto atan2(const Y& y, const X& x) {
    return binary<op::atan2, detail::lifted<Y>, detail::lifted<X>>{detail::lift(y), detail::lift(x)};
}
/// -t log(p) - (1 - t) log(1 - p), each logarithm clamped to at least -100. Its derivative is PyTorch's, (p - t) / (p
/// (1 - p)), with a divisor of at least 1e-12, so that it does not vanish at p = 0 and 1.
template <class P, class T>
requires detail::operands<P, T> HALFTONE_HD constexpr auto binary_cross_entropy(const P& p, const T& t) {
    return binary<op::binary_cross_entropy, detail::lifted<P>, detail::lifted<T>>{detail::lift(p), detail::lift(t)};
}
template <expression A>
HALFTONE_HD constexpr unary<op::tanh, A> tanh(const A& a) {
    return {a};
}
/// 1 / (1 + exp(-a)).
template <expression A>
HALFTONE_HD constexpr unary<op::sigmoid, A> sigmoid(const A& a) {
    return {a};
}
/// max(a, 0); NaN stays NaN.
template <expression A>
HALFTONE_HD constexpr unary<op::relu, A> relu(const A& a) {
    return {a};
}
/// a sigmoid(a).
template <expression A>
HALFTONE_HD constexpr unary<op::silu, A> silu(const A& a) {
    return {a};
}
/// GPT-2's gelu: a (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3))) / 2.
template <expression A>
HALFTONE_HD constexpr unary<op::gelu, A> gelu(const A& a) {
    return {a};
}

/// The error function: twice the integral of exp(-t^2) from 0 to a, over sqrt(pi).
template <expression A>
HALFTONE_HD constexpr unary<op::erf, A> erf(const A& a) {
    return {a};
}
/// The gelu of BERT: a times the probability that a normal number is below a, a (1 + erf(a / sqrt(2))) / 2.
template <expression A>
HALFTONE_HD constexpr auto gelu_erf(const A& a) {
    return 0.5f * a * (one{} + symbolic::erf(0.70710678118654752 * a));
}

/// A functor of floats that returns a float and is not traced; see `halftone::opaque`.
template <class Function>
struct opaque_function {
    Function function;

    template <class... A>
        requires(detail::operand<A>&&...)
    HALFTONE_HD constexpr auto operator()(const A&... a) const {
        return external<Function, detail::lifted<A>...>{function, make_pack(detail::lift(a)...)};
    }
};

}  // namespace symbolic

using symbolic::abs;
using symbolic::atan2;
using symbolic::cosh;
using symbolic::erf;
using symbolic::exp;
using symbolic::expm1;
using symbolic::gelu;
using symbolic::gelu_erf;
using symbolic::log;
using symbolic::log10;
using symbolic::log1p;
using symbolic::log2;
using symbolic::max;
using symbolic::min;
using symbolic::pow;
using symbolic::reciprocal;
using symbolic::relu;
using symbolic::rsqrt;
using symbolic::sigmoid;
using symbolic::sign;
using symbolic::silu;
using symbolic::sinh;
using symbolic::softplus;
using symbolic::sqrt;
using symbolic::square;
using symbolic::tan;
using symbolic::tanh;
using symbolic::where;

/// Makes a function that cannot be traced part of an expression: a struct with `float operator()(float...) const` (for
/// maps of doubles: of doubles; a template serves both), marked HALFTONE_HD. It runs on scalars, has no derivative, and
/// may also be called with zeros for padding after the last element.
///
///     struct clamp { HALFTONE_HD float operator()(float x) const { return x < 0 ? 0 : x > 1 ? 1 : x; } };
///     ht::map(device, ht::opaque(clamp{}), x, out);
template <class Function>
HALFTONE_HD constexpr symbolic::opaque_function<Function> opaque(const Function& function) {
    static_assert(std::is_trivially_copyable_v<Function>,
                  "halftone: opaque: the functor goes into kernels and has to be trivially copyable");
    return {function};
}

/// Several results of one lambda: `return ht::results(x + y, x - y);`.
template <class... T>
    requires(symbolic::detail::operand<T>&&...)
HALFTONE_HD constexpr auto results(const T&... values) { return make_pack(symbolic::detail::lift(values)...); }

namespace detail {

/// Only for templates: a function of numbers is never called with symbols, which a compiler would try to convert.
template <class F>
concept takes_numbers = std::is_pointer_v<F> || requires { &F::operator(); };
template <class F, int... Index>
constexpr bool takes_arguments(std::integer_sequence<int, Index...>) {
    if constexpr (sizeof...(Index) > 0 && takes_numbers<F>) {
        return false;
    } else {
        return std::is_invocable_v<const F&, symbolic::argument<Index>...>;
    }
}

template <class F, int... Index>
constexpr auto trace(const F& f, std::integer_sequence<int, Index...>) {
    static_assert(takes_arguments<F>(std::integer_sequence<int, Index...>{}),
                  "halftone: map: the function does not take that many symbolic arguments; give a generic lambda, "
                  "[](auto x, auto y) { return x + y; }, with one argument for each input, or ht::opaque(functor)");
    using result = std::invoke_result_t<const F&, symbolic::argument<Index>...>;
    if constexpr (detail::is_pack<result>) {
        return f(symbolic::argument<Index>{}...);
    } else {
        static_assert(
            symbolic::detail::operand<result>,
            "halftone: map: the function has to return an expression of its arguments, a number, or ht::results(...)");
        return symbolic::detail::lift(f(symbolic::argument<Index>{}...));
    }
}

}  // namespace detail

/// The expression (or pack of expressions) that f computes from `Arguments` arguments; f is called once, here.
template <int Arguments, class F>
constexpr auto trace(const F& f) {
    return detail::trace(f, std::make_integer_sequence<int, Arguments>{});
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
