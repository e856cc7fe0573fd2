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
/// Operands of the operators and functions (operators.hpp, function.hpp) are expressions, or numbers, which become constants of the type in
/// which the expression is evaluated. Comparisons give conditions, of which `where` chooses; they have no truth value
/// while the lambda is traced. Zeros and ones that are known by type, as derivatives make them, are simplified: 0 x to
/// 0 and 1 x to x.
#pragma once

#include <type_traits>
#include <utility>

#include <halftone/config.hpp>
#include <halftone/kernel/map/expression/function.hpp>
#include <halftone/number/constants.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace symbolic {

/// The logarithm of a to base 2.
template <expression A>
HALFTONE_HD constexpr auto log2(const A& a) {
    constexpr double log2_of_e = halftone::detail::log2_of_e_in_double;
    return log2_of_e * symbolic::log(a);
}
/// The logarithm of a to base 10.
template <expression A>
HALFTONE_HD constexpr auto log10(const A& a) {
    return 0.43429448190325182 * symbolic::log(a);
}
/// 1 / a.
template <expression A>
HALFTONE_HD constexpr auto reciprocal(const A& a) {
    return one{} / a;
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

using symbolic::gelu_erf;
using symbolic::log10;
using symbolic::log2;
using symbolic::reciprocal;

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
