// SPDX-License-Identifier: MIT
/// \file
/// Pointwise operations under PyTorch's names, on tapes and in inference contexts.
///
///     auto y = ht::log1p(ctx, ht::exp(ctx, x));
///     auto y = ht::div(ctx, ht::sub(ctx, x, mean), 2.0f);            // mean: x's shape, a row, or one value
///     auto y = ht::exp<ht::bfloat16>(ctx, x);                        // a result of that type, in any region or none
///
/// Each is a symbolic map (kernel/map): one kernel in the forward and one in the backward pass, compiled where it is
/// called. The contract is that of pointwise.hpp. If several follow each other, one ht::map of all of them reads memory
/// only once. Powers, logarithms and exponentials are fp32 under autocast; addcmul, addcdiv and atan2 the widest of
/// their inputs and `compute`; the others keep their inputs' type (policy/operations.hpp).
#pragma once

#include <halftone/autodiff/op/pointwise.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// -x.
template <class As = by_category, recording_context Context, class X, int Rank>
auto neg(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::neg, As>(context, [](auto a) { return -a; }, x);
}
/// The absolute value of x. Its derivative at 0 is 0.
template <class As = by_category, recording_context Context, class X, int Rank>
auto abs(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::abs, As>(context, [](auto a) { return halftone::abs(a); }, x);
}
/// The square root of x; NaN for a negative x. Its derivative at 0 is infinite.
template <class As = by_category, recording_context Context, class X, int Rank>
auto sqrt(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::sqrt, As>(context, [](auto a) { return halftone::sqrt(a); }, x);
}
/// 1 / sqrt(x).
template <class As = by_category, recording_context Context, class X, int Rank>
auto rsqrt(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::rsqrt, As>(context, [](auto a) { return halftone::rsqrt(a); }, x);
}
/// 1 / x.
template <class As = by_category, recording_context Context, class X, int Rank>
auto reciprocal(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::reciprocal, As>(context, [](auto a) { return halftone::reciprocal(a); }, x);
}
/// e to the power of x.
template <class As = by_category, recording_context Context, class X, int Rank>
auto exp(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::exp, As>(context, [](auto a) { return halftone::exp(a); }, x);
}
/// exp(x) - 1, accurate also for small x.
template <class As = by_category, recording_context Context, class X, int Rank>
auto expm1(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::expm1, As>(context, [](auto a) { return halftone::expm1(a); }, x);
}
/// The natural logarithm of x; -infinity for 0, NaN for a negative x.
template <class As = by_category, recording_context Context, class X, int Rank>
auto log(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::log, As>(context, [](auto a) { return halftone::log(a); }, x);
}
/// log(1 + x), accurate also for small x.
template <class As = by_category, recording_context Context, class X, int Rank>
auto log1p(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::log1p, As>(context, [](auto a) { return halftone::log1p(a); }, x);
}
/// The logarithm of x to base 2.
template <class As = by_category, recording_context Context, class X, int Rank>
auto log2(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::log2, As>(context, [](auto a) { return halftone::log2(a); }, x);
}
/// The logarithm of x to base 10.
template <class As = by_category, recording_context Context, class X, int Rank>
auto log10(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::log10, As>(context, [](auto a) { return halftone::log10(a); }, x);
}
/// The hyperbolic sine of x.
template <class As = by_category, recording_context Context, class X, int Rank>
auto sinh(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::sinh, As>(context, [](auto a) { return halftone::sinh(a); }, x);
}
/// The hyperbolic cosine of x.
template <class As = by_category, recording_context Context, class X, int Rank>
auto cosh(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::cosh, As>(context, [](auto a) { return halftone::cosh(a); }, x);
}
/// The tangent of x, in radians.
template <class As = by_category, recording_context Context, class X, int Rank>
auto tan(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::tan, As>(context, [](auto a) { return halftone::tan(a); }, x);
}
/// 1 / (1 + exp(-x)).
template <class As = by_category, recording_context Context, class X, int Rank>
auto sigmoid(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::sigmoid, As>(context, [](auto a) { return halftone::sigmoid(a); }, x);
}
/// x sigmoid(x).
template <class As = by_category, recording_context Context, class X, int Rank>
auto silu(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::silu, As>(context, [](auto a) { return halftone::silu(a); }, x);
}
/// log(1 + exp(x)).
template <class As = by_category, recording_context Context, class X, int Rank>
auto softplus(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::softplus, As>(context, [](auto a) { return halftone::softplus(a); }, x);
}
/// The error function of x.
template <class As = by_category, recording_context Context, class X, int Rank>
auto erf(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::erf, As>(context, [](auto a) { return halftone::erf(a); }, x);
}
/// x (1 + erf(x / sqrt(2))) / 2: the gelu of BERT, torch.nn.functional.gelu(x) with approximate="none"; ht::gelu is GPT-2's,
/// which computes by tanh. Its absolute error is |x| 2^-22 before the result is rounded; far below 0 it loses digits, as
/// PyTorch's does.
template <class As = by_category, recording_context Context, class X, int Rank>
auto gelu_erf(Context&& context, const variable<X, Rank>& x) {
    return detail::pointwise<op::gelu_erf, As>(context, [](auto a) { return halftone::gelu_erf(a); }, x);
}
/// x if it is positive, otherwise slope x.
template <class As = by_category, recording_context Context, class X, int Rank>
auto leaky_relu(Context&& context, const variable<X, Rank>& x, double slope = 0.01) {
    return detail::pointwise<op::leaky_relu, As>(
        context, [slope](auto a) { return halftone::where(a > 0, a, slope * a); }, x);
}
/// x if it is positive, otherwise slope x, with a learnable slope: one value, or one for each column.
template <class As = by_category, recording_context Context, class X, int Rank, class S, int Other>
auto prelu(Context&& context, const variable<X, Rank>& x, const variable<S, Other>& slope) {
    return detail::pointwise<op::prelu, As>(
        context, [](auto a, auto s) { return halftone::where(a > 0, a, s * a); }, x, slope);
}

/// a / b. Throws shape_error if b has neither a's shape, nor one value, nor one for each of a's columns.
template <class As = by_category, recording_context Context, class A, class B, int Rank, int Other>
auto div(Context&& context, const variable<A, Rank>& a, const variable<B, Other>& b) {
    return detail::pointwise<op::div, As>(
        context, [](auto p, auto q) { return p / q; }, a, b);
}
/// x to the power y, as std::pow. The derivative with respect to x is 0 where y is 0; that with respect to y is 0 where
/// x is 0 and y is not negative.
template <class As = by_category, recording_context Context, class X, class Y, int Rank, int Other>
auto pow(Context&& context, const variable<X, Rank>& x, const variable<Y, Other>& y) {
    return detail::pointwise<op::pow, As>(
        context, [](auto p, auto q) { return halftone::pow(p, q); }, x, y);
}
/// The angle of the point (x, y), in (-pi, pi].
template <class As = by_category, recording_context Context, class Y, class X, int Rank, int Other>
auto atan2(Context&& context, const variable<Y, Rank>& y, const variable<X, Other>& x) {
    return detail::pointwise<op::atan2, As>(
        context, [](auto p, auto q) { return halftone::atan2(p, q); }, y, x);
}
/// x + value a b.
template <class As = by_category, recording_context Context, class X, class A, class B, int Rank, int RankA, int RankB>
auto addcmul(Context&& context, const variable<X, Rank>& x, const variable<A, RankA>& a, const variable<B, RankB>& b,
             double value = 1) {
    return detail::pointwise<op::addcmul, As>(
        context, [value](auto p, auto q, auto r) { return p + value * q * r; }, x, a, b);
}
/// x + value a / b.
template <class As = by_category, recording_context Context, class X, class A, class B, int Rank, int RankA, int RankB>
auto addcdiv(Context&& context, const variable<X, Rank>& x, const variable<A, RankA>& a, const variable<B, RankB>& b,
             double value = 1) {
    return detail::pointwise<op::addcdiv, As>(
        context, [value](auto p, auto q, auto r) { return p + value * q / r; }, x, a, b);
}

// A number as the second operand does not affect the result's type.

/// x + value.
template <class As = by_category, recording_context Context, class X, int Rank>
auto add(Context&& context, const variable<X, Rank>& x, double value) {
    return detail::pointwise<op::add, As>(
        context, [value](auto a) { return a + value; }, x);
}
/// x - value.
template <class As = by_category, recording_context Context, class X, int Rank>
auto sub(Context&& context, const variable<X, Rank>& x, double value) {
    return detail::pointwise<op::sub, As>(
        context, [value](auto a) { return a - value; }, x);
}
/// x times value.
template <class As = by_category, recording_context Context, class X, int Rank>
auto mul(Context&& context, const variable<X, Rank>& x, double value) {
    return detail::pointwise<op::mul, As>(
        context, [value](auto a) { return a * value; }, x);
}
/// x / value.
template <class As = by_category, recording_context Context, class X, int Rank>
auto div(Context&& context, const variable<X, Rank>& x, double value) {
    return detail::pointwise<op::div, As>(
        context, [value](auto a) { return a / value; }, x);
}
/// x to the power of value.
template <class As = by_category, recording_context Context, class X, int Rank>
auto pow(Context&& context, const variable<X, Rank>& x, double value) {
    return detail::pointwise<op::pow, As>(
        context, [value](auto a) { return halftone::pow(a, value); }, x);
}

/// x converted to T, and its gradient converted to X; x itself if T is X.
template <class T, recording_context Context, class X, int Rank>
auto cast(Context&& context, const variable<X, Rank>& x) {
    static_assert(number<T>,
                  "halftone: cast is given something other than a number type: ht::cast<float>(ctx, x); what computes "
                  "by a policy is called in a region, ht::autocast<policy>(ctx)");
    if constexpr (std::is_same_v<T, X> && detail::leaves_out<Context>) {
        return x;
    } else {
        return detail::pointwise<op::cast, T>(
            context, [](auto a) { return a; }, x);
    }
}

namespace detail {

/// A result of Op, computed as X and returned as Y. Whether this needs a cast depends on more than the policy's types.
template <class Op, class Y, class Context, class X, int Rank>
variable<Y, Rank> given_as(Context&& context, const variable<X, Rank>& x) {
    if constexpr (std::is_same_v<X, Y> && operation_category<Op>::value == stated_category<Op>()) {
        return x;
    } else {
        return halftone::cast<Y>(context, x);
    }
}

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
