// SPDX-License-Identifier: MIT
/// \file
/// Replaces functions in an expression by faster approximations (short forms) if the result is rounded to 16 bits or
/// fewer.
///
///     symbolic::shorten<bfloat16>(gelu(argument<0>{}) * argument<1>{})      // with a faster gelu
///
/// gelu, silu and their derivatives have short forms. They are used where the function is the whole expression or a
/// factor of it: relative errors of factors add up to that of their product; but a sum may cancel, so functions inside
/// a sum are unchanged.
///
/// Numeric contract: exec/cpu/simd/math.simd.hpp and kernel/map/expression/scalar.hpp state the errors, which are small
/// compared with half a unit in the last place of T.
#pragma once

#include <type_traits>

#include <halftone/kernel/map/expression/function.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace symbolic {

namespace op {
/// Op for results in T, which is bfloat16 for all types with significands of at most 8 bits, and float16 for the others.
template <class Op, class T>
struct short_form {};
}  // namespace op

namespace detail {

template <class Op>
inline constexpr bool has_short_form = std::is_same_v<Op, op::gelu> || std::is_same_v<Op, op::gelu_derivative> ||
                                       std::is_same_v<Op, op::silu> || std::is_same_v<Op, op::silu_derivative>;

template <class T, class E>
struct shortened {
    HALFTONE_HD static constexpr const E& of(const E& e) { return e; }
};
template <class T, class Op, class A>
    requires has_short_form<Op>
struct shortened<T, unary<Op, A>> {
    using number = std::conditional_t<(unit_roundoff<T> < unit_roundoff<bfloat16>), float16, bfloat16>;
    HALFTONE_HD static constexpr auto of(const unary<Op, A>& e) {
        return unary<op::short_form<Op, number>, A>{e.operand};
    }
};
template <class T, class A>
struct shortened<T, unary<op::negate, A>> {
    HALFTONE_HD static constexpr auto of(const unary<op::negate, A>& e) {
        const auto operand = shortened<T, A>::of(e.operand);
        return unary<op::negate, std::remove_const_t<decltype(operand)>>{operand};
    }
};
template <class T, class A, class B>
struct shortened<T, binary<op::multiply, A, B>> {
    HALFTONE_HD static constexpr auto of(const binary<op::multiply, A, B>& e) {
        const auto left = shortened<T, A>::of(e.left);
        const auto right = shortened<T, B>::of(e.right);
        return binary<op::multiply, std::remove_const_t<decltype(left)>, std::remove_const_t<decltype(right)>>{left,
                                                                                                              right};
    }
};

}  // namespace detail

/// Upper bound of the errors of all short forms for T: relative, for derivatives absolute.
template <class T>
inline constexpr double short_form_error = sizeof(T) < sizeof(float) ? 0x1p-12 : 0;

/// The expression for results in T.
template <class T, expression E>
HALFTONE_HD constexpr auto shorten(const E& e) {
    if constexpr (sizeof(T) < sizeof(float)) {
        return detail::shortened<T, E>::of(e);
    } else {
        return e;
    }
}

}  // namespace symbolic
}  // namespace HALFTONE_ABI
}  // namespace halftone
