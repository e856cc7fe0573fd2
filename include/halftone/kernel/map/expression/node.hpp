// SPDX-License-Identifier: MIT
/// \file
/// The nodes of symbolic expressions and conditions, and traits of their types; expression.hpp has the operators and
/// functions that make them.
///
///     symbolic::binary<symbolic::op::multiply, symbolic::argument<0>, symbolic::constant>{{}, {2.0f}}      // 2 x
///
/// A node is plain data: `constant` holds a number, every other node only its operands.
#pragma once

#include <type_traits>
#include <utility>

#include <halftone/config.hpp>
#include <halftone/kernel/map/expression/pack.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace symbolic {

namespace op {
struct negate;  // function.hpp has the functions of one operand
struct add {};
struct subtract {};
struct multiply {};
struct divide {};
struct minimum {};
struct maximum {};
struct power {};
struct atan2 {};
struct binary_cross_entropy {};  ///< of a probability and a target
struct less {};
struct less_equal {};
struct equal {};
struct both {};
struct either {};
}  // namespace op

namespace detail {

/// The error where a lambda uses an expression as a number, as std::tanh and sinf do with their argument.
template <class T>
HALFTONE_HD constexpr float as_number() {
    static_assert(sizeof(T*) == 0,
                  "halftone: map: while a function is traced its arguments are symbols for all elements, and not "
                  "numbers: call halftone's functions (ht::exp, ht::tanh, ...), not std's or C's, or give ht::opaque(functor)");
    return 0;
}

}  // namespace detail

/// The value of input `Index`.
template <int Index>
struct argument {
    template <class T = void>
    HALFTONE_HD constexpr operator float() const { return detail::as_number<T>(); }
};

struct constant {
    float value;
    double exact;  ///< the value in expressions that are evaluated in double

    HALFTONE_HD constexpr explicit constant(double x) : value(static_cast<float>(x)), exact(x) {}
    /// The constant as a float, and as a double.
    HALFTONE_HD constexpr constant(float x, double e) : value(x), exact(e) {}
};
struct zero {};
struct one {};

template <class Op, class A>
struct unary {
    A operand;
    template <class T = void>
    HALFTONE_HD constexpr operator float() const { return detail::as_number<T>(); }
};

template <class Op, class A, class B>
struct binary {
    A left;
    B right;
    template <class T = void>
    HALFTONE_HD constexpr operator float() const { return detail::as_number<T>(); }
};

/// A function that cannot be traced, called with the values of its operands, one element at a time.
template <class Function, class... A>
struct external {
    Function function;
    pack<A...> operands;
    template <class T = void>
    HALFTONE_HD constexpr operator float() const { return detail::as_number<T>(); }
};

template <class Condition, class A, class B>
struct choice {
    Condition condition;
    A yes;
    B no;
    template <class T = void>
    HALFTONE_HD constexpr operator float() const { return detail::as_number<T>(); }
};

namespace detail {

/// The error of using a condition as a bool.
struct not_a_bool {
    template <class T = void>
    explicit operator bool() const {
        static_assert(sizeof(T*) == 0,
                      "halftone: map: a symbolic condition has no truth value; choose with ht::where(condition, a, b)");
        return false;
    }
};

}  // namespace detail

template <class Op, class A, class B>
struct comparison : detail::not_a_bool {
    A left;
    B right;
    HALFTONE_HD constexpr comparison(const A& a, const B& b) : left(a), right(b) {}
};
template <class Op, class A, class B>
struct logical : detail::not_a_bool {
    A left;
    B right;
    HALFTONE_HD constexpr logical(const A& a, const B& b) : left(a), right(b) {}
};
template <class A>
struct complement : detail::not_a_bool {
    A operand;
    HALFTONE_HD constexpr explicit complement(const A& a) : operand(a) {}
};

namespace detail {

template <class T>
inline constexpr bool is_expression = false;
template <int Index>
inline constexpr bool is_expression<argument<Index>> = true;
template <>
inline constexpr bool is_expression<constant> = true;
template <>
inline constexpr bool is_expression<zero> = true;
template <>
inline constexpr bool is_expression<one> = true;
template <class Op, class A>
inline constexpr bool is_expression<unary<Op, A>> = true;
template <class Op, class A, class B>
inline constexpr bool is_expression<binary<Op, A, B>> = true;
template <class Function, class... A>
inline constexpr bool is_expression<external<Function, A...>> = true;
template <class Condition, class A, class B>
inline constexpr bool is_expression<choice<Condition, A, B>> = true;

/// Whether the value depends on argument Index.
template <int Index, class T>
inline constexpr bool reads = false;
template <int Index>
inline constexpr bool reads<Index, argument<Index>> = true;
template <int Index, class Op, class A>
inline constexpr bool reads<Index, unary<Op, A>> = reads<Index, A>;
template <int Index, class Op, class A, class B>
inline constexpr bool reads<Index, binary<Op, A, B>> = reads<Index, A> || reads<Index, B>;
template <int Index, class Function, class... A>
inline constexpr bool reads<Index, external<Function, A...>> = (reads<Index, A> || ...);
template <int Index, class Condition, class A, class B>
inline constexpr bool reads<Index, choice<Condition, A, B>> =
    reads<Index, Condition> || reads<Index, A> || reads<Index, B>;
template <int Index, class Op, class A, class B>
inline constexpr bool reads<Index, comparison<Op, A, B>> = reads<Index, A> || reads<Index, B>;
template <int Index, class Op, class A, class B>
inline constexpr bool reads<Index, logical<Op, A, B>> = reads<Index, A> || reads<Index, B>;
template <int Index, class A>
inline constexpr bool reads<Index, complement<A>> = reads<Index, A>;
template <int Index, class... E>
inline constexpr bool reads<Index, pack<E...>> = (reads<Index, E> || ...);

/// Zeros of a type that a product must keep as a factor, because the other factor may be infinite.
template <class T>
inline constexpr bool masks = std::is_same_v<T, zero>;
template <class Condition, class A, class B>
inline constexpr bool masks<choice<Condition, A, B>> = masks<A> || masks<B>;

}  // namespace detail

}  // namespace symbolic

/// A pointwise function of some arguments, as a type.
template <class T>
concept expression = symbolic::detail::is_expression<std::remove_cv_t<T>>;

/// A comparison of expressions, or a combination of comparisons.
template <class T>
concept symbolic_condition = std::is_base_of_v<symbolic::detail::not_a_bool, std::remove_cv_t<T>>;

/// Whether the value of the expression, or of one in a pack, depends on argument `Index`: kernels do not access an
/// input that is not read, which then may be without data.
template <int Index, class E>
inline constexpr bool reads = symbolic::detail::reads<Index, std::remove_cv_t<E>>;

namespace symbolic {

namespace detail {

template <class T>
concept operand = expression<T> ||(std::is_convertible_v<T, float> && !symbolic_condition<T>);

template <class A, class B>
concept operands = operand<A> && operand<B> &&(expression<A> || expression<B>);

template <class T>
inline constexpr bool is_zero = std::is_same_v<T, zero>;
template <class T>
inline constexpr bool is_one = std::is_same_v<T, one>;
template <class T>
inline constexpr bool is_constant = std::is_same_v<T, constant> || is_zero<T> || is_one<T>;

HALFTONE_HD constexpr constant constant_of(const constant& c) { return c; }
HALFTONE_HD constexpr constant constant_of(zero) { return constant(0.0); }
HALFTONE_HD constexpr constant constant_of(one) { return constant(1.0); }
HALFTONE_HD constexpr constant negate(const constant& a) { return {-a.value, -a.exact}; }
HALFTONE_HD constexpr constant add(const constant& a, const constant& b) {
    return {a.value + b.value, a.exact + b.exact};
}
HALFTONE_HD constexpr constant multiply(const constant& a, const constant& b) {
    return {a.value * b.value, a.exact * b.exact};
}

/// An operand as an expression.
template <operand T>
HALFTONE_HD constexpr auto lift(const T& x) {
    if constexpr (expression<T>) {
        return x;
    } else {
        return constant(static_cast<double>(x));
    }
}
template <class T>
using lifted = decltype(lift(std::declval<const T&>()));

}  // namespace detail

}  // namespace symbolic

}  // namespace HALFTONE_ABI
}  // namespace halftone
