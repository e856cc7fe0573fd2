// SPDX-License-Identifier: MIT
/// \file
/// Derivatives of expressions, which are expressions, too.
///
///     auto e = ht::trace<2>([](auto x, auto y) { return x * y; });
///     auto d = ht::derivative<0>(e);                               // argument<1>: y
///
/// Where a function is not differentiable, the result is PyTorch's: relu' and abs' are 0 at 0, min and max share the
/// gradient evenly between equal arguments, and `where` has that of the chosen operand. A derivative known by its type
/// to be zero stays zero in products, whatever the other factor.
#pragma once

#include <halftone/kernel/map/expression/expression.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace symbolic {

namespace detail {

/// The argument with respect to which `derive` differentiates. In this namespace, so that all overloads are found by
/// ADL.
template <int Index>
struct by {};

template <int Index, int Other>
HALFTONE_HD constexpr auto derive(by<Index>, const argument<Other>&) {
    if constexpr (Index == Other) {
        return one{};
    } else {
        return zero{};
    }
}
template <int Index>
HALFTONE_HD constexpr zero derive(by<Index>, const constant&) {
    return {};
}
template <int Index>
HALFTONE_HD constexpr zero derive(by<Index>, const zero&) {
    return {};
}
template <int Index>
HALFTONE_HD constexpr zero derive(by<Index>, const one&) {
    return {};
}

template <int Index, class Op, class A>
HALFTONE_HD constexpr auto derive(by<Index> i, const unary<Op, A>& e) {
    const auto inner = derive(i, e.operand);
    if constexpr (is_zero<std::remove_const_t<decltype(inner)>>) {
        return zero{};
    } else {
        return inner * Op::slope(e, e.operand);
    }
}

template <int Index, class A, class B>
HALFTONE_HD constexpr auto derive(by<Index> i, const binary<op::add, A, B>& e) {
    return derive(i, e.left) + derive(i, e.right);
}
template <int Index, class A, class B>
HALFTONE_HD constexpr auto derive(by<Index> i, const binary<op::subtract, A, B>& e) {
    return derive(i, e.left) - derive(i, e.right);
}
template <int Index, class A, class B>
HALFTONE_HD constexpr auto derive(by<Index> i, const binary<op::multiply, A, B>& e) {
    return derive(i, e.left) * e.right + e.left * derive(i, e.right);
}
template <int Index, class A, class B>
HALFTONE_HD constexpr auto derive(by<Index> i, const binary<op::divide, A, B>& e) {
    return (derive(i, e.left) - e * derive(i, e.right)) / e.right;
}
template <int Index, class A, class B>
HALFTONE_HD constexpr auto derive(by<Index> i, const binary<op::power, A, B>& e) {
    const auto a = derive(i, e.left);
    const auto b = derive(i, e.right);
    // 0 where the power is constant in its exponent: for a^0, and for 0^b with b >= 0.
    return a * symbolic::where(e.right == zero{}, zero{}, e.right * symbolic::pow(e.left, e.right - one{})) +
           b * symbolic::where(e.left == zero{} && e.right >= zero{}, zero{}, e * symbolic::log(e.left));
}
template <int Index, class A, class B>
HALFTONE_HD constexpr auto derive(by<Index> i, const binary<op::atan2, A, B>& e) {
    return (derive(i, e.left) * e.right - e.left * derive(i, e.right)) /
           (symbolic::square(e.left) + symbolic::square(e.right));
}
template <int Index, class A, class B>
HALFTONE_HD constexpr auto derive(by<Index> i, const binary<op::binary_cross_entropy, A, B>& e) {
    const auto miss = symbolic::max(symbolic::log1p(-e.left), -100.0f);
    const auto hit = symbolic::max(symbolic::log(e.left), -100.0f);
    return derive(i, e.left) * ((e.left - e.right) / symbolic::max(e.left * (one{} - e.left), 1e-12)) +
           derive(i, e.right) * (miss - hit);
}
template <int Index, class A, class B>
HALFTONE_HD constexpr auto derive(by<Index> i, const binary<op::minimum, A, B>& e) {
    const auto a = derive(i, e.left);
    const auto b = derive(i, e.right);
    return symbolic::where(e.left == e.right, 0.5f * (a + b), symbolic::where(e.left < e.right, a, b));
}
template <int Index, class A, class B>
HALFTONE_HD constexpr auto derive(by<Index> i, const binary<op::maximum, A, B>& e) {
    const auto a = derive(i, e.left);
    const auto b = derive(i, e.right);
    return symbolic::where(e.left == e.right, 0.5f * (a + b), symbolic::where(e.right < e.left, a, b));
}

template <int Index, class Condition, class A, class B>
HALFTONE_HD constexpr auto derive(by<Index> i, const choice<Condition, A, B>& e) {
    return symbolic::where(e.condition, derive(i, e.yes), derive(i, e.no));
}

template <int Index, class Function, class... A>
HALFTONE_HD constexpr zero derive(by<Index>, const external<Function, A...>&) {
    static_assert(
        sizeof(Function) == 0 || !(reads<Index, A> || ...),
        "halftone: derivative: an opaque functor has no derivative; write it as a generic lambda over ht:: functions, "
        "or keep gradients from reaching it");
    return {};
}

}  // namespace detail

}  // namespace symbolic

/// The derivative of an expression with respect to its argument `Index`.
template <int Index, expression E>
HALFTONE_HD constexpr auto derivative(const E& e) {
    return symbolic::detail::derive(symbolic::detail::by<Index>{}, e);
}

namespace detail {

template <class E>
constexpr pack<E> as_pack(const E& e) {
    return {e, {}};
}
template <class... E>
constexpr pack<E...> as_pack(const pack<E...>& e) {
    return e;
}

template <int Index, int Inputs, class... E, int... Result>
constexpr auto gradient(const pack<E...>& e, std::integer_sequence<int, Result...>) {
    return (symbolic::zero{} + ... +
            (symbolic::argument<Inputs + Result>{} * derivative<Index>(e.template at<Result>())));
}

/// The gradient of input `Index` of an expression (or a pack of results) with `Inputs` inputs: the sum over results of
/// argument<Inputs + result>, the gradient of that result, times the result's derivative.
template <int Index, int Inputs, class E>
constexpr auto gradient_expression(const E& e) {
    const auto results = detail::as_pack(e);
    return detail::gradient<Index, Inputs>(
        results, std::make_integer_sequence<int, static_cast<int>(decltype(results)::count)>{});
}

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
