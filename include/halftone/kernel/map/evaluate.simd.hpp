// SPDX-License-Identifier: MIT
/// \file
/// Expressions on the vectors of one instruction set: a function for each operation, and a recursion over the nodes.
/// Everything is inlined, so that an expression becomes straight vector code, with common subexpressions computed once.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <type_traits>
#include <utility>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/map/expression/expression.hpp>
#include <halftone/kernel/map/expression/scalar.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::negate, const V& a) { return -a; }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::abs, const V& a) { return abs(a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::sign, const V& a) {
    return select(less(splat(0.0f), abs(a)), copy_sign(splat(1.0f), a), a);  // zeros and NaNs are returned unchanged
}
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::square, const V& a) { return a * a; }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::sqrt, const V& a) { return sqrt(a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::rsqrt, const V& a) { return rsqrt(a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::exp, const V& a) { return exp(a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::expm1, const V& a) { return expm1(a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::log, const V& a) { return log(a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::log1p, const V& a) { return log1p(a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::softplus, const V& a) { return softplus(a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::erf, const V& a) { return erf(a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::tanh, const V& a) { return tanh(a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::tanh_derivative, const V& a) { return tanh_derivative(a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::sigmoid, const V& a) { return sigmoid(a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::sigmoid_derivative, const V& a) { return sigmoid_derivative(a); }
// max returns its second operand if either is NaN.
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::relu, const V& a) { return max(splat(0.0f), a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::silu, const V& a) { return silu(a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::silu_derivative, const V& a) { return silu_derivative(a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::gelu, const V& a) { return gelu(a); }
template <vectors V>
HALFTONE_INLINE V apply(symbolic::op::gelu_derivative, const V& a) { return gelu_derivative(a); }

template <class T, vectors V>
HALFTONE_INLINE V apply(symbolic::op::short_form<symbolic::op::silu, T>, const V& a) { return silu<T>(a); }
template <class T, vectors V>
HALFTONE_INLINE V apply(symbolic::op::short_form<symbolic::op::silu_derivative, T>, const V& a) {
    return silu_derivative<T>(a);
}
template <class T, vectors V>
HALFTONE_INLINE V apply(symbolic::op::short_form<symbolic::op::gelu, T>, const V& a) { return gelu<T>(a); }
template <class T, vectors V>
HALFTONE_INLINE V apply(symbolic::op::short_form<symbolic::op::gelu_derivative, T>, const V& a) {
    return gelu_derivative<T>(a);
}

template <vectors A, vectors B>
HALFTONE_INLINE auto apply(symbolic::op::add, const A& a, const B& b) { return a + b; }
template <vectors A, vectors B>
HALFTONE_INLINE auto apply(symbolic::op::subtract, const A& a, const B& b) { return a - b; }
template <vectors A, vectors B>
HALFTONE_INLINE auto apply(symbolic::op::multiply, const A& a, const B& b) { return a * b; }
template <vectors A, vectors B>
HALFTONE_INLINE auto apply(symbolic::op::divide, const A& a, const B& b) { return a / b; }
template <vectors A, vectors B>
HALFTONE_INLINE auto apply(symbolic::op::minimum, const A& a, const B& b) { return select(equal(a, a), min(a, b), a); }
template <vectors A, vectors B>
HALFTONE_INLINE auto apply(symbolic::op::maximum, const A& a, const B& b) { return select(equal(a, a), max(a, b), a); }

template <vectors A, vectors B>
HALFTONE_INLINE auto apply(symbolic::op::binary_cross_entropy, const A& p, const B& t) {
    // max returns its second operand if either is NaN.
    const A hit = max(splat(-100.0f), log(p)), miss = max(splat(-100.0f), log1p(-p));
    return -(t * hit + (1.0f - t) * miss);
}

// Rare functions are <cmath>'s, lane by lane.
template <class Op>
HALFTONE_INLINE f32 apply_to_lanes(Op operation, f32 a) {
    float lanes[f32::lanes];
    store(lanes, a);
    for (float& x : lanes) x = scalar::apply(operation, x);
    return load(lanes);
}
template <class Op>
HALFTONE_INLINE f32 apply_to_lanes(Op operation, f32 a, f32 b) {
    float left[f32::lanes], right[f32::lanes];
    store(left, a);
    store(right, b);
#if __FINITE_MATH_ONLY__
    __asm__ volatile("" : : "r"(left), "r"(right) : "memory");  // prevents clang from turning pow into sqrt, which loses NaNs
#endif
    for (int i = 0; i < f32::lanes; ++i) left[i] = scalar::apply(operation, left[i], right[i]);
    return load(left);
}
template <class Op, int N>
HALFTONE_INLINE vector_block<N> apply_to_lanes(Op operation, const vector_block<N>& a) {
    vector_block<N> r;
    for (int i = 0; i < N; ++i) r.v[i] = apply_to_lanes(operation, a.v[i]);
    return r;
}
template <class Op, class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto apply_to_lanes(Op operation, const A& a, const B& b) {
    vector_block<largest_vector_block<A, B>> r;
    for (int i = 0; i < largest_vector_block<A, B>; ++i) r.v[i] = apply_to_lanes(operation, part(a, i), part(b, i));
    return r;
}
template <class Op, vectors V>
    requires halftone::detail::symbolic_function<Op>
HALFTONE_INLINE V apply(Op op, const V& a) { return apply_to_lanes(op, a); }
template <vectors A, vectors B>
HALFTONE_INLINE auto apply(symbolic::op::power op, const A& a, const B& b) { return apply_to_lanes(op, a, b); }
template <vectors A, vectors B>
HALFTONE_INLINE auto apply(symbolic::op::atan2 op, const A& y, const B& x) { return apply_to_lanes(op, y, x); }

template <vectors A, vectors B>
HALFTONE_INLINE auto apply(symbolic::op::less, const A& a, const B& b) { return less(a, b); }
template <vectors A, vectors B>
HALFTONE_INLINE auto apply(symbolic::op::less_equal, const A& a, const B& b) { return less_equal(a, b); }
template <vectors A, vectors B>
HALFTONE_INLINE auto apply(symbolic::op::equal, const A& a, const B& b) { return equal(a, b); }
template <class A, class B>
HALFTONE_INLINE auto apply(symbolic::op::both, const A& a, const B& b) { return both(a, b); }
template <class A, class B>
HALFTONE_INLINE auto apply(symbolic::op::either, const A& a, const B& b) { return either(a, b); }

template <int Index, vectors V>
HALFTONE_INLINE V evaluate(const symbolic::argument<Index>&, const V* x) {
    return x[Index];
}
template <vectors V>
HALFTONE_INLINE f32 evaluate(const symbolic::constant& c, const V*) { return splat(c.value); }
template <vectors V>
HALFTONE_INLINE f32 evaluate(const symbolic::zero&, const V*) { return splat(0.0f); }
template <vectors V>
HALFTONE_INLINE f32 evaluate(const symbolic::one&, const V*) { return splat(1.0f); }

template <class Op, class A, vectors V>
HALFTONE_INLINE auto evaluate(const symbolic::unary<Op, A>& e, const V* x) {
    return apply(Op{}, evaluate(e.operand, x));
}
template <class Op, class A, class B, vectors V>
HALFTONE_INLINE auto evaluate(const symbolic::binary<Op, A, B>& e, const V* x) {
    return apply(Op{}, evaluate(e.left, x), evaluate(e.right, x));
}

template <class Op, class A, class B, vectors V>
HALFTONE_INLINE auto evaluate(const symbolic::comparison<Op, A, B>& e, const V* x) {
    return apply(Op{}, evaluate(e.left, x), evaluate(e.right, x));
}
template <class Op, class A, class B, vectors V>
HALFTONE_INLINE auto evaluate(const symbolic::logical<Op, A, B>& e, const V* x) {
    return apply(Op{}, evaluate(e.left, x), evaluate(e.right, x));
}
template <class A, vectors V>
HALFTONE_INLINE auto evaluate(const symbolic::complement<A>& e, const V* x) {
    return complement(evaluate(e.operand, x));
}
template <class Condition, class A, class B, vectors V>
HALFTONE_INLINE auto evaluate(const symbolic::choice<Condition, A, B>& e, const V* x) {
    return select(evaluate(e.condition, x), evaluate(e.yes, x), evaluate(e.no, x));
}

template <class Function, class... A, std::size_t... Index>
HALFTONE_INLINE f32 evaluate_lanes(const symbolic::external<Function, A...>& e, const f32* operands,
                                   std::index_sequence<Index...>) {
    float lanes[sizeof...(A) + 1][f32::lanes];
    (store(lanes[Index], operands[Index]), ...);
    float* const results = lanes[sizeof...(A)];
    for (int i = 0; i < f32::lanes; ++i) results[i] = e.function(lanes[Index][i]...);
    return load(results);
}
template <class Function, class... A, vectors V, std::size_t... Index>
HALFTONE_INLINE V evaluate_external(const symbolic::external<Function, A...>& e, const V* x,
                                    std::index_sequence<Index...> all) {
    const V operands[] = {broadcast(evaluate(e.operands.template at<Index>(), x), x)...};
    if constexpr (std::is_same_v<V, f32>) {
        return evaluate_lanes(e, operands, all);
    } else {
        V results;
        for (int i = 0; i < vectors_in_block<V>; ++i) {
            const f32 parts[] = {part(operands[Index], i)...};
            results.v[i] = evaluate_lanes(e, parts, all);
        }
        return results;
    }
}
template <class Function, class... A, vectors V>
HALFTONE_INLINE V evaluate(const symbolic::external<Function, A...>& e, const V* x) {
    return evaluate_external(e, x, std::index_sequence_for<A...>{});
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
