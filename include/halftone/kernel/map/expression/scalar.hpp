// SPDX-License-Identifier: MIT
/// \file
/// Expressions on single numbers: in double the definition of every operation, in float what a GPU's thread evaluates.
///
///     const double x[] = {0.5, 2.0};
///     double y = ht::scalar::evaluate(e, x);
///
/// Works for any type with the operators of a number whose namespace has exp, log, sqrt, tanh and erf, or functions `apply`
/// for the operations that need them.
///
/// Errors in float on a GPU: function.hpp states those of functions; short forms (short_form.hpp) have the errors stated in
/// exec/cpu/simd/math.simd.hpp for float16, whatever the type. pow and atan2 are <cmath>'s on both devices: within 4 ulp
/// according to the CUDA Programming Guide and to glibc's manual.
#pragma once

#include <cmath>
#include <type_traits>
#include <utility>

#include <halftone/exec/simt/memory.hpp>
#include <halftone/kernel/exponential.hpp>
#include <halftone/kernel/map/expression/expression.hpp>
#include <halftone/kernel/map/expression/short_form.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/constants.hpp>

#include <halftone/number/precise/begin.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace scalar {

namespace op = symbolic::op;

// The definitions, one for each operation.

/// The value of a function of one operand, by its struct in function.hpp.
HALFTONE_KERNEL template <class Op, class V>
    requires halftone::detail::symbolic_function<Op>
HALFTONE_HD inline V apply(Op, const V& a) {
    return Op::value(a);
}
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline V apply(op::power, const V& a, const V& b) {
    using std::pow;
    return pow(a, b);
}
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline V apply(op::atan2, const V& y, const V& x) {
    using std::atan2;
    return atan2(y, x);
}
/// Each logarithm is at least -100; a NaN stays a NaN.
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline V apply(op::binary_cross_entropy, const V& p, const V& t) {
    using std::log, std::log1p;
    const V hit = log(p), miss = log1p(-p);
    return -(t * (hit < V(-100) ? V(-100) : hit) + (V(1) - t) * (miss < V(-100) ? V(-100) : miss));
}
// In double a short form is defined as the function that it approximates.
HALFTONE_KERNEL template <class Op, class T, class V>
HALFTONE_HD inline V apply(op::short_form<Op, T>, const V& a) {
    return apply(Op{}, a);
}
/// x / (1 + 2^n), which is x times the sigmoid of -n log 2; and its derivative, from that of -n log 2.
HALFTONE_HD inline float over_one_and_power(float x, float n) {
    return kernel::on_device::quotient(x, 1.0f + kernel::on_device::power_of_two(n));
}
HALFTONE_HD inline float over_one_and_power_derivative(float x, float n, float slope) {
    const float e = kernel::on_device::power_of_two(n), whole = kernel::on_device::quotient(1.0f, 1.0f + e);
    return std::fma(whole * (e * whole), x * slope, whole);
}
/// The exponent n of gelu divided by x, from x^2.
HALFTONE_HD inline float gelu_exponent(float square) {
    return std::fma(square, -0.1029432395800235f, -2.302208198144325f);
}
HALFTONE_KERNEL template <class T>
HALFTONE_HD inline float apply(op::short_form<op::silu, T>, const float& x) {
    return over_one_and_power(x, x * -halftone::detail::log2_of_e);
}
HALFTONE_KERNEL template <class T>
HALFTONE_HD inline float apply(op::short_form<op::silu_derivative, T>, const float& a) {
    const float x = within(a, 40.0f);
    return over_one_and_power_derivative(x, x * -halftone::detail::log2_of_e, 1.0f);
}
HALFTONE_KERNEL template <class T>
HALFTONE_HD inline float apply(op::short_form<op::gelu, T>, const float& x) {
    return over_one_and_power(x, x * gelu_exponent(x * x));
}
HALFTONE_KERNEL template <class T>
HALFTONE_HD inline float apply(op::short_form<op::gelu_derivative, T>, const float& a) {
    const float x = within(a, 7.0f), square = x * x;
    const float slope = std::fma(square, 0.214064448817803f, 1.59576912160573f);
    return over_one_and_power_derivative(x, x * gelu_exponent(square), slope);
}

HALFTONE_KERNEL template <class V>
HALFTONE_HD inline V apply(op::add, const V& a, const V& b) {
    return a + b;
}
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline V apply(op::subtract, const V& a, const V& b) {
    return a - b;
}
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline V apply(op::multiply, const V& a, const V& b) {
    return a * b;
}
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline V apply(op::divide, const V& a, const V& b) {
    return a / b;
}
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline V apply(op::minimum, const V& a, const V& b) {
    return a < b || is_unordered(a) ? a : b;
}
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline V apply(op::maximum, const V& a, const V& b) {
    return b < a || is_unordered(a) ? a : b;
}
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline bool apply(op::less, const V& a, const V& b) {
    return a < b;
}
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline bool apply(op::less_equal, const V& a, const V& b) {
    return a <= b;
}
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline bool apply(op::equal, const V& a, const V& b) {
    return a == b;
}
HALFTONE_HD constexpr bool apply(op::both, bool a, bool b) { return a && b; }
HALFTONE_HD constexpr bool apply(op::either, bool a, bool b) { return a || b; }

namespace detail {

/// A constant as a number of type V.
HALFTONE_KERNEL template <class V>
HALFTONE_HD constexpr auto constant_as(const symbolic::constant& c) {
    if constexpr (std::is_floating_point_v<V> && sizeof(V) > sizeof(float)) {
        return c.exact;
    } else {
        return c.value;
    }
}

// The kinds of nodes are overloads; static members of a class, so that each finds those declared later.
struct walk {
    HALFTONE_KERNEL template <int Index, class V>
    HALFTONE_HD static V to(const symbolic::argument<Index>&, const V* x) {
        return x[Index];
    }
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V to(const symbolic::constant& c, const V*) {
        return V(constant_as<V>(c));
    }
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V to(const symbolic::zero&, const V*) {
        return V(0);
    }
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V to(const symbolic::one&, const V*) {
        return V(1);
    }
    HALFTONE_KERNEL template <class Op, class A, class V>
    HALFTONE_HD static V to(const symbolic::unary<Op, A>& e, const V* x) {
        return apply(Op{}, to(e.operand, x));
    }
    HALFTONE_KERNEL template <class Op, class A, class B, class V>
    HALFTONE_HD static V to(const symbolic::binary<Op, A, B>& e, const V* x) {
        return apply(Op{}, to(e.left, x), to(e.right, x));
    }
    HALFTONE_KERNEL template <class Op, class A, class B, class V>
    HALFTONE_HD static bool to(const symbolic::comparison<Op, A, B>& e, const V* x) {
        return apply(Op{}, to(e.left, x), to(e.right, x));
    }
    HALFTONE_KERNEL template <class Op, class A, class B, class V>
    HALFTONE_HD static bool to(const symbolic::logical<Op, A, B>& e, const V* x) {
        return apply(Op{}, to(e.left, x), to(e.right, x));
    }
    HALFTONE_KERNEL template <class A, class V>
    HALFTONE_HD static bool to(const symbolic::complement<A>& e, const V* x) {
        return !to(e.operand, x);
    }
    HALFTONE_KERNEL template <class Condition, class A, class B, class V>
    HALFTONE_HD static V to(const symbolic::choice<Condition, A, B>& e, const V* x) {
        return to(e.condition, x) ? to(e.yes, x) : to(e.no, x);
    }
    template <class Function, class... A, class V>
    HALFTONE_HD static V to(const symbolic::external<Function, A...>& e, const V* x) {
        return call(e, x, std::index_sequence_for<A...>{});
    }
    template <class Function, class... A, class V, std::size_t... Index>
    HALFTONE_HD static V call(const symbolic::external<Function, A...>& e, const V* x, std::index_sequence<Index...>) {
        using result = decltype(e.function(to(e.operands.template at<Index>(), x)...));
        if constexpr (std::is_same_v<result, V>) {
            return e.function(to(e.operands.template at<Index>(), x)...);
        } else {
            return V(e.function(static_cast<float>(to(e.operands.template at<Index>(), x))...));
        }
    }
};

}  // namespace detail

/// The value of e for these arguments.
HALFTONE_KERNEL template <expression E, class V>
HALFTONE_HD inline V evaluate(const E& e, const V* arguments) {
    return detail::walk::to(e, arguments);
}

}  // namespace scalar
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/number/precise/end.hpp>
