// SPDX-License-Identifier: MIT
/// \file
/// The functions of one operand that expressions are made of. A function is one struct, `symbolic::op::softplus`, and one line that lets
/// expressions call it, `symbolic::softplus(a)`. The struct has
///
///     value(a)       its value for one number: in double its definition, in float what a thread of a GPU computes
///     slope(e, a)    its derivative at a as an expression, where e is the function of a itself
///     ulp            the error of its value in float, on CPUs and GPUs, in units of the last place: the distance between the two floats
///                    around the exact value. A function with another bound has none, and its bound stands in exec/cpu/simd/math.simd.hpp
///
/// On CPUs a function is computed element by element, unless kernel/map/evaluate.simd.hpp has code for vectors.
///
/// `value` works for any type with the operators of a number whose namespace has the functions of <cmath> that it calls.
///
/// Errors in float on a GPU are at most those on a CPU, because the CUDA Programming Guide gives expf, expm1f, logf and log1pf 1 ulp, tanhf
/// and erff 2, and square roots and divisions 0.5. sinh, cosh and tan are <cmath>'s on both devices: within 4 ulp according to that guide
/// and to glibc's manual. nvcc's --use_fast_math is rejected.
#pragma once

#include <cmath>
#include <type_traits>

#include <halftone/exec/simt/memory.hpp>
#include <halftone/kernel/map/expression/operators.hpp>
#include <halftone/number/classify.hpp>

#include <halftone/number/precise/begin.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {

namespace scalar {

/// Whether x is NaN, also under -ffinite-math-only.
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline bool is_unordered(const V& x) {
#if __FINITE_MATH_ONLY__
    if constexpr (std::is_floating_point_v<V>) return is_nan(x);
#endif
    return !(x == x);
}
/// 1 / (1 + e^-x), from e^-|x|, which does not overflow.
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline V sigmoid(const V& x) {
    using std::exp;
    const V e = exp(x < V(0) ? x : -x);
    return (x < V(0) ? e : V(1)) / (V(1) + e);
}
/// The derivative of 1 / (1 + e^-x), from e^-|x|, which does not overflow.
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline V sigmoid_derivative(const V& x) {
    using std::exp;
    const V e = exp(x < V(0) ? x : -x);
    return e / ((V(1) + e) * (V(1) + e));
}
/// The derivative of x sigmoid(t), where t is a function of x with the given derivative.
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline V gated_derivative(const V& x, const V& t, const V& t_derivative) {
    return sigmoid(t) + x * t_derivative * sigmoid_derivative(t);
}
/// x clamped to [-limit, limit], beyond which a derivative is 0 or 1.
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline V within(const V& x, const V& limit) {
#if __FINITE_MATH_ONLY__
    if (is_unordered(x)) return x;
#endif
    return x < -limit ? -limit : limit < x ? limit : x;
}
/// Twice the argument of gelu's tanh, since (1 + tanh(u)) / 2 = sigmoid(2 u), which has no cancellation: sqrt(8/pi)
/// (x + 0.044715 x^3), in the form with the fewest roundings.
HALFTONE_KERNEL template <class V>
HALFTONE_HD inline V gelu_argument(const V& x) {
    return x * (V(1.5957691216057308) + V(0.071354816272600248) * x * x);
}

}  // namespace scalar

namespace symbolic {

namespace detail {

/// 1 - 2 sigmoid(a), without cancellation.
template <class A>
HALFTONE_HD constexpr auto one_minus_two_sigmoid(const A& a);

}  // namespace detail

// Functions that slopes need before they are defined.
namespace op {
struct sinh;
struct tanh;
}  // namespace op
template <expression A>
HALFTONE_HD constexpr unary<op::sinh, A> sinh(const A& a);
template <expression A>
HALFTONE_HD constexpr unary<op::tanh, A> tanh(const A& a);

namespace op {
/// -a, which is also what the operator gives.
struct negate {
    static constexpr double ulp = 0;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) { return -a; }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A&) { return constant(-1.0); }
};
/// The sign: -1, 0 or 1.
struct sign {
    static constexpr double ulp = 0;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) { return a < V(0) ? V(-1) : V(0) < a ? V(1) : a; }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A&) { return zero{}; }
};
}  // namespace op
/// The sign of a: -1, 0 or 1.
template <expression A>
HALFTONE_HD constexpr unary<op::sign, A> sign(const A& a) { return {a}; }

namespace op {
/// The absolute value.
struct abs {
    static constexpr double ulp = 0;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) {
        if constexpr (std::is_floating_point_v<V>) {
            return std::fabs(a);  // also for -0
        } else {
            return a < V(0) ? -a : a;
        }
    }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) { return symbolic::sign(a); }
};
}  // namespace op
/// The absolute value of a.
template <expression A>
HALFTONE_HD constexpr unary<op::abs, A> abs(const A& a) { return {a}; }

namespace op {
/// a a.
struct square {
    static constexpr double ulp = 0.5;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) { return a * a; }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) { return 2.0f * a; }
};
}  // namespace op
/// a a, with one rounding.
template <expression A>
HALFTONE_HD constexpr unary<op::square, A> square(const A& a) { return {a}; }

namespace op {
/// 1 / sqrt(a).
struct rsqrt {
    static constexpr double ulp = 2;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) {
        using std::sqrt;
        return V(1) / sqrt(a);
    }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E& e, const A& a) { return -0.5f * e / a; }
};
}  // namespace op
/// 1 / sqrt(a).
template <expression A>
HALFTONE_HD constexpr unary<op::rsqrt, A> rsqrt(const A& a) { return {a}; }

namespace op {
/// The square root.
struct sqrt {
    static constexpr double ulp = 0.5;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) {
        using std::sqrt;
        return sqrt(a);
    }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) { return 0.5f * symbolic::rsqrt(a); }
};
}  // namespace op
/// The square root of a.
template <expression A>
HALFTONE_HD constexpr unary<op::sqrt, A> sqrt(const A& a) { return {a}; }

namespace op {
/// e to the power of a.
struct exp {
    static constexpr double ulp = 2;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) {
        using std::exp;
        return exp(a);
    }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E& e, const A&) { return e; }
};
}  // namespace op
/// e to the power of a.
template <expression A>
HALFTONE_HD constexpr unary<op::exp, A> exp(const A& a) { return {a}; }

namespace op {
/// exp(a) - 1.
struct expm1 {
    static constexpr double ulp = 3;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) {
        using std::expm1;
        return expm1(a);
    }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) { return symbolic::exp(a); }
};
}  // namespace op
/// exp(a) - 1, accurate also for small a.
template <expression A>
HALFTONE_HD constexpr unary<op::expm1, A> expm1(const A& a) { return {a}; }

namespace op {
/// The natural logarithm.
struct log {
    static constexpr double ulp = 2;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) {
        using std::log;
        return log(a);
    }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) { return one{} / a; }
};
}  // namespace op
/// The natural logarithm of a.
template <expression A>
HALFTONE_HD constexpr unary<op::log, A> log(const A& a) { return {a}; }

namespace op {
/// log(1 + a).
struct log1p {
    static constexpr double ulp = 3;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) {
        using std::log1p;
        return log1p(a);
    }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) { return one{} / (one{} + a); }
};
}  // namespace op
/// log(1 + a), accurate also for small a.
template <expression A>
HALFTONE_HD constexpr unary<op::log1p, A> log1p(const A& a) { return {a}; }

namespace op {
/// sigmoid(a) (1 - sigmoid(a)), without cancellation.
struct sigmoid_derivative {
    static constexpr double ulp = 5;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) { return scalar::sigmoid_derivative(a); }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E& e, const A& a) { return e * detail::one_minus_two_sigmoid(a); }
};
/// 1 / (1 + exp(-a)).
struct sigmoid {
    static constexpr double ulp = 3;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) { return scalar::sigmoid(a); }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) { return unary<sigmoid_derivative, A>{a}; }
};
}  // namespace op
/// 1 / (1 + exp(-a)).
template <expression A>
HALFTONE_HD constexpr unary<op::sigmoid, A> sigmoid(const A& a) { return {a}; }

namespace op {
/// 1 - tanh(a)^2, without cancellation.
struct tanh_derivative {
    static constexpr double ulp = 5;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) { return V(4) * scalar::sigmoid_derivative(V(2) * a); }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E& e, const A& a) { return -2.0f * symbolic::tanh(a) * e; }
};
/// The hyperbolic tangent.
struct tanh {
    static constexpr double ulp = 3;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) {
        using std::tanh;
        return tanh(a);
    }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) { return unary<tanh_derivative, A>{a}; }
};
}  // namespace op
/// The hyperbolic tangent of a.
template <expression A>
HALFTONE_HD constexpr unary<op::tanh, A> tanh(const A& a) { return {a}; }
template <class A>
HALFTONE_HD constexpr auto detail::one_minus_two_sigmoid(const A& a) { return -symbolic::tanh(0.5f * a); }

namespace op {
/// log(1 + exp(a)).
struct softplus {
    static constexpr double ulp = 4;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) {
        using std::exp, std::log1p;
        return (a < V(0) ? V(0) : a) + log1p(exp(a < V(0) ? a : -a));  // e^-|a| does not overflow
    }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) { return symbolic::sigmoid(a); }
};
}  // namespace op
/// log(1 + exp(a)).
template <expression A>
HALFTONE_HD constexpr unary<op::softplus, A> softplus(const A& a) { return {a}; }

namespace op {
/// The error function.
struct erf {
    static constexpr double ulp = 2;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) {
        using std::erf;
        return erf(a);
    }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) {
        return 1.1283791670955126 * symbolic::exp(-symbolic::square(a));  // 2 / sqrt(pi)
    }
};
}  // namespace op
/// The error function: twice the integral of exp(-t^2) from 0 to a, over sqrt(pi).
template <expression A>
HALFTONE_HD constexpr unary<op::erf, A> erf(const A& a) { return {a}; }

namespace op {
/// The hyperbolic cosine.
struct cosh {
    static constexpr double ulp = 4;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) {
        using std::cosh;
        return cosh(a);
    }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) { return symbolic::sinh(a); }
};
}  // namespace op
/// The hyperbolic cosine of a.
template <expression A>
HALFTONE_HD constexpr unary<op::cosh, A> cosh(const A& a) { return {a}; }

namespace op {
/// The hyperbolic sine.
struct sinh {
    static constexpr double ulp = 4;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) {
        using std::sinh;
        return sinh(a);
    }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) { return symbolic::cosh(a); }
};
}  // namespace op
/// The hyperbolic sine of a.
template <expression A>
HALFTONE_HD constexpr unary<op::sinh, A> sinh(const A& a) { return {a}; }

namespace op {
/// The tangent.
struct tan {
    static constexpr double ulp = 4;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) {
        using std::tan;
        return tan(a);
    }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E& e, const A&) { return one{} + symbolic::square(e); }
};
}  // namespace op
/// The tangent of a, in radians.
template <expression A>
HALFTONE_HD constexpr unary<op::tan, A> tan(const A& a) { return {a}; }

namespace op {
/// max(a, 0); NaN stays NaN.
struct relu {
    static constexpr double ulp = 0;
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) { return a < V(0) ? V(0) : a; }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) {
        return symbolic::where(a <= zero{}, zero{}, one{});
    }
};
}  // namespace op
/// max(a, 0); NaN stays NaN.
template <expression A>
HALFTONE_HD constexpr unary<op::relu, A> relu(const A& a) { return {a}; }

namespace op {
/// The derivative of a sigmoid(a).
struct silu_derivative {
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) {
        const V x = scalar::within(a, V(800));
        return scalar::gated_derivative(x, x, V(1));
    }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) {
        return unary<sigmoid_derivative, A>{a} * (2.0f + a * detail::one_minus_two_sigmoid(a));
    }
};
/// a sigmoid(a).
struct silu {
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) { return a * scalar::sigmoid(a); }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) { return unary<silu_derivative, A>{a}; }
};
}  // namespace op
/// a sigmoid(a).
template <expression A>
HALFTONE_HD constexpr unary<op::silu, A> silu(const A& a) { return {a}; }

namespace op {
/// The derivative of GPT-2's gelu.
struct gelu_derivative {
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) {
        const V x = scalar::within(a, V(32));
        return scalar::gated_derivative(x, scalar::gelu_argument(x), V(1.5957691216057308) + V(3 * 0.071354816272600248) * x * x);
    }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) {
        // gelu is x sigmoid(t); beyond 16 its derivative is constant, and the powers below would overflow.
        const auto x = symbolic::min(symbolic::max(a, -16.0f), 16.0f);
        const auto t = x * (1.5957691216057308 + 0.071354816272600248 * symbolic::square(x));
        const auto t_derivative = 1.5957691216057308 + 0.21406444881780074 * symbolic::square(x);
        const auto curve = 0.42812889763560149 * x + detail::one_minus_two_sigmoid(t) * symbolic::square(t_derivative);
        return unary<sigmoid_derivative, std::remove_const_t<decltype(t)>>{t} * (2.0f * t_derivative + x * curve);
    }
};
/// GPT-2's gelu.
struct gelu {
    HALFTONE_KERNEL template <class V>
    HALFTONE_HD static V value(const V& a) { return a * scalar::sigmoid(scalar::gelu_argument(a)); }
    template <class E, class A>
    HALFTONE_HD static constexpr auto slope(const E&, const A& a) { return unary<gelu_derivative, A>{a}; }
};
}  // namespace op
/// GPT-2's gelu: a (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3))) / 2.
template <expression A>
HALFTONE_HD constexpr unary<op::gelu, A> gelu(const A& a) { return {a}; }

}  // namespace symbolic

using symbolic::abs;
using symbolic::cosh;
using symbolic::erf;
using symbolic::exp;
using symbolic::expm1;
using symbolic::gelu;
using symbolic::log;
using symbolic::log1p;
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

namespace detail {

/// A function of one operand, as a node of an expression.
template <class Op>
concept symbolic_function = requires(double x) { Op::value(x); };

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/number/precise/end.hpp>
