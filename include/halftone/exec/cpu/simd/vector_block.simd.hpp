// SPDX-License-Identifier: MIT
/// \file
/// Blocks of N vectors, computed side by side, in the operations of an instruction set's f32. A function of one vector
/// is a chain of dependent instructions, and a processor's out-of-order window holds only a few hundred of them:
/// applied to a block, the same function is N independent chains, whose latencies overlap.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <type_traits>

#include <halftone/exec/cpu/simd/vectors.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <int N>
struct vector_block {
    f32 v[N];
};
template <int N>
struct mask_block {
    mask m[N];
};

template <class T>
inline constexpr int vectors_in_block = 0;
template <int N>
inline constexpr int vectors_in_block<vector_block<N>> = N;
template <int N>
inline constexpr int vectors_in_block<mask_block<N>> = N;
template <class... T>
inline constexpr int largest_vector_block = 0;
template <class T, class... Others>
inline constexpr int largest_vector_block<T, Others...> =
    vectors_in_block<T> > largest_vector_block<Others...> ? vectors_in_block<T> : largest_vector_block<Others...>;

/// A vector, or a block of vectors.
template <class V>
concept vectors = std::is_same_v<V, f32> || vectors_in_block<V> > 0;
/// Operands of which at least one is a block; the others are blocks of the same size, or single vectors, which are
/// broadcast.
template <class... T>
concept vector_blocks = largest_vector_block<T...> > 0;

HALFTONE_INLINE f32 part(f32 a, int) { return a; }
HALFTONE_INLINE mask part(mask a, int) { return a; }
template <int N>
HALFTONE_INLINE f32 part(const vector_block<N>& a, int i) {
    return a.v[i];
}
template <int N>
HALFTONE_INLINE mask part(const mask_block<N>& a, int i) {
    return a.m[i];
}

template <int N, class F>
HALFTONE_INLINE vector_block<N> each_part(const F& f) {
    vector_block<N> r;
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) r.v[i] = f(i);
    return r;
}
template <int N, class F>
HALFTONE_INLINE mask_block<N> each_mask(const F& f) {
    mask_block<N> r;
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) r.m[i] = f(i);
    return r;
}
/// Makes a block of a block (unchanged) or of one vector (repeated).
template <vectors V>
HALFTONE_INLINE V broadcast(const V& a, const V*) {
    return a;
}
template <int N>
HALFTONE_INLINE vector_block<N> broadcast(f32 a, const vector_block<N>*) {
    return each_part<N>([&](int) __attribute__((always_inline)) { return a; });
}

template <class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto operator+(const A& a, const B& b) {
    return each_part<largest_vector_block<A, B>>([&](int i) __attribute__((always_inline)) { return part(a, i) + part(b, i); });
}
template <class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto operator-(const A& a, const B& b) {
    return each_part<largest_vector_block<A, B>>([&](int i) __attribute__((always_inline)) { return part(a, i) - part(b, i); });
}
template <class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto operator*(const A& a, const B& b) {
    return each_part<largest_vector_block<A, B>>([&](int i) __attribute__((always_inline)) { return part(a, i) * part(b, i); });
}
template <class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto operator/(const A& a, const B& b) {
    return each_part<largest_vector_block<A, B>>([&](int i) __attribute__((always_inline)) { return part(a, i) / part(b, i); });
}
template <class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto approximate_quotient(const A& a, const B& b) {
    return each_part<largest_vector_block<A, B>>(
        [&](int i) __attribute__((always_inline)) { return approximate_quotient(part(a, i), part(b, i)); });
}
template <int N>
HALFTONE_INLINE vector_block<N> operator-(const vector_block<N>& a) {
    return each_part<N>([&](int i) __attribute__((always_inline)) { return -a.v[i]; });
}
template <class A, class B, class C>
    requires vector_blocks<A, B, C>
HALFTONE_INLINE auto fma(const A& a, const B& b, const C& c) {
    return each_part<largest_vector_block<A, B, C>>(
        [&](int i) __attribute__((always_inline)) { return fma(part(a, i), part(b, i), part(c, i)); });
}
template <class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto min(const A& a, const B& b) {
        return each_part<largest_vector_block<A, B>>([&](int i) __attribute__((always_inline)) {
            return min(part(a, i), part(b, i));
        });
}
template <class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto max(const A& a, const B& b) {
        return each_part<largest_vector_block<A, B>>([&](int i) __attribute__((always_inline)) {
            return max(part(a, i), part(b, i));
        });
}
template <int N>
HALFTONE_INLINE vector_block<N> sqrt(const vector_block<N>& a) {
    return each_part<N>([&](int i) __attribute__((always_inline)) { return sqrt(a.v[i]); });
}
template <int N>
HALFTONE_INLINE vector_block<N> abs(const vector_block<N>& a) {
    return each_part<N>([&](int i) __attribute__((always_inline)) { return abs(a.v[i]); });
}
template <int N>
HALFTONE_INLINE vector_block<N> round_even(const vector_block<N>& a) {
    return each_part<N>([&](int i) __attribute__((always_inline)) { return round_even(a.v[i]); });
}
template <class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto copy_sign(const A& magnitude, const B& sign) {
    return each_part<largest_vector_block<A, B>>(
        [&](int i) __attribute__((always_inline)) { return copy_sign(part(magnitude, i), part(sign, i)); });
}
template <class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto scale_by_power(const A& x, const B& n) {
    return each_part<largest_vector_block<A, B>>(
        [&](int i) __attribute__((always_inline)) { return scale_by_power(part(x, i), part(n, i)); });
}
template <class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto scale_down(const A& x, const B& n) {
    return each_part<largest_vector_block<A, B>>(
        [&](int i) __attribute__((always_inline)) { return scale_down(part(x, i), part(n, i)); });
}
template <int N>
HALFTONE_INLINE vector_block<N> above_floor(const vector_block<N>& a) {
    return each_part<N>([&](int i) __attribute__((always_inline)) { return above_floor(a.v[i]); });
}
template <int N>
HALFTONE_INLINE vector_block<N> scale_by_floor(const vector_block<N>& p, const vector_block<N>& a) {
    return each_part<N>([&](int i) __attribute__((always_inline)) { return scale_by_floor(p.v[i], a.v[i]); });
}
template <int N>
HALFTONE_INLINE vector_block<N> split_exponent(const vector_block<N>& x, vector_block<N>& m) {
    return each_part<N>([&](int i) __attribute__((always_inline)) { return split_exponent(x.v[i], m.v[i]); });
}

template <class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto less(const A& a, const B& b) {
        return each_mask<largest_vector_block<A, B>>([&](int i) __attribute__((always_inline)) {
            return less(part(a, i), part(b, i));
        });
}
template <class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto less_equal(const A& a, const B& b) {
    return each_mask<largest_vector_block<A, B>>(
        [&](int i) __attribute__((always_inline)) { return less_equal(part(a, i), part(b, i)); });
}
template <class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto equal(const A& a, const B& b) {
        return each_mask<largest_vector_block<A, B>>([&](int i) __attribute__((always_inline)) {
            return equal(part(a, i), part(b, i));
        });
}
template <class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto both(const A& a, const B& b) {
        return each_mask<largest_vector_block<A, B>>([&](int i) __attribute__((always_inline)) {
            return both(part(a, i), part(b, i));
        });
}
template <class A, class B>
    requires vector_blocks<A, B>
HALFTONE_INLINE auto either(const A& a, const B& b) {
        return each_mask<largest_vector_block<A, B>>([&](int i) __attribute__((always_inline)) {
            return either(part(a, i), part(b, i));
        });
}
template <int N>
HALFTONE_INLINE mask_block<N> complement(const mask_block<N>& a) {
    return each_mask<N>([&](int i) __attribute__((always_inline)) { return complement(a.m[i]); });
}
template <class M, class A, class B>
    requires vector_blocks<M, A, B>
HALFTONE_INLINE auto select(const M& m, const A& yes, const B& no) {
    return each_part<largest_vector_block<M, A, B>>(
        [&](int i) __attribute__((always_inline)) { return select(part(m, i), part(yes, i), part(no, i)); });
}

// A number is broadcast to a vector.
template <vectors V>
HALFTONE_INLINE V operator+(const V& a, float b) {
    return a + splat(b);
}
template <vectors V>
HALFTONE_INLINE V operator+(float a, const V& b) {
    return splat(a) + b;
}
template <vectors V>
HALFTONE_INLINE V operator-(const V& a, float b) {
    return a - splat(b);
}
template <vectors V>
HALFTONE_INLINE V operator-(float a, const V& b) {
    return splat(a) - b;
}
template <vectors V>
HALFTONE_INLINE V operator*(const V& a, float b) {
    return a * splat(b);
}
template <vectors V>
HALFTONE_INLINE V operator*(float a, const V& b) {
    return splat(a) * b;
}
template <vectors V>
HALFTONE_INLINE V operator/(const V& a, float b) {
    return a / splat(b);
}
template <vectors V>
HALFTONE_INLINE V operator/(float a, const V& b) {
    return splat(a) / b;
}
template <vectors A, vectors B>
HALFTONE_INLINE auto fma(const A& a, const B& b, float c) {
    return fma(a, b, splat(c));
}
template <vectors A, vectors C>
HALFTONE_INLINE auto fma(const A& a, float b, const C& c) {
    return fma(a, splat(b), c);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
