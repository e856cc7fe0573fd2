// SPDX-License-Identifier: MIT
/// \file
/// The operators of symbolic expressions, and the functions of two operands. expression.hpp says what they are for.
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

}  // namespace symbolic

using symbolic::atan2;
using symbolic::max;
using symbolic::min;
using symbolic::pow;
using symbolic::where;

}  // namespace HALFTONE_ABI
}  // namespace halftone
