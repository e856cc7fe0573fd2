// SPDX-License-Identifier: MIT
/// \file
/// Elementary functions on vectors, written in the operations of an instruction set's f32. Polynomials are those of
/// Cephes (Moshier), expf, logf and tanhf, where nothing else is said.
///
/// Errors against the exact value, over all floats, are those that kernel/map/expression/function.hpp states in ulp, and
///     exp2                            2 ulp; exp2_by_floor, which others use, 3
///     silu, gelu                      relative (6 + 4 |t|) 2^-24, t being the argument of their sigmoid; where that
///                                     sigmoid is subnormal (t < -87), absolute 2^-120
///     silu_derivative, gelu_derivative          absolute 2^-21, since they cross zero
///     for results that are rounded to 16 bits or fewer, as in silu<bfloat16>(x):
///     silu, gelu                      relative (1 + |t| / 16) 2^-18 for float16, 1.125 2^-13 + |t| 2^-22 for types whose
///                                     significands have 8 bits or fewer
///     silu_derivative, gelu_derivative          absolute 2^-17
/// Infinities and NaNs give what <cmath> gives; silu and gelu of minus infinity are NaN, as the product that defines
/// them is.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <type_traits>

#include <halftone/exec/cpu/simd/vector_block.hpp>
#include <halftone/number/constants.hpp>
#include <halftone/number/split.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

HALFTONE_INLINE f32 round_piece(f32 a) { return floats_of((words_of(a) + 0x8000u) & 0xffff0000u); }

template <int From, int N>
HALFTONE_INLINE void take_pieces(f32 rest, f32* pieces) {
#pragma GCC unroll 3
    for (int i = From; i < N; ++i) {
        pieces[i] = round_piece(rest);
        rest = rest - pieces[i];
    }
}

/// The pieces of split<bfloat16, N>, as floats.
template <int N>
HALFTONE_INLINE void split_bfloat16(f32 a, f32* pieces) {
    take_pieces<0, N>(a, pieces);
    const mask usual = less(abs(a), splat(0x1.ffp127f));
    if (__builtin_expect(any(complement(usual)), 0)) {
        f32 kept[N];
        for (int i = 0; i < N; ++i) kept[i] = pieces[i];
        const mask endless = not_finite(a);
        pieces[0] = select(endless, round_bfloat16(a), copy_sign(splat(0x1.fep127f), a));
        take_pieces<1, N>(select(endless, splat(0.0f), a - pieces[0]), pieces);
        if constexpr (N == 2) pieces[1] = copy_sign(min(abs(pieces[1]), splat(0x1.fep119f)), pieces[1]);
        for (int i = 0; i < N; ++i) pieces[i] = select(usual, kept[i], pieces[i]);
    }
}

/// a, rounded as by storing it as T and loading it again.
template <class T>
HALFTONE_INLINE f32 round_as(f32 a) {
    if constexpr (std::is_same_v<T, bfloat16>) {
        return round_bfloat16(a);
    } else if constexpr (std::is_same_v<T, float16>) {
        return round_float16(a);
    } else if constexpr (std::is_same_v<T, tfloat32>) {
        return round_tfloat32(a);
    } else if constexpr (std::is_same_v<T, split<bfloat16, 2>>) {
        f32 pieces[2];
        split_bfloat16<2>(a, pieces);
        return select(equal(pieces[1], splat(0.0f)), pieces[0], pieces[0] + pieces[1]);
    } else if constexpr (own_number<T>) {
        return round_own<T>(a);
    } else if constexpr (eight_bit<T>) {
        return widen_float8(narrow_float8(a, static_cast<const T*>(nullptr)), static_cast<const T*>(nullptr));
    } else {
        static_assert(std::is_same_v<T, float> || std::is_same_v<T, split<bfloat16, 3>>,
                      "halftone: vectors are rounded to float, bfloat16, float16, float8_e4m3, float8_e5m2, tfloat32 or "
                      "split<bfloat16, 2>; split<bfloat16, 3> holds every float");
        return a;
    }
}

/// For sets without a non-temporal store of a type: an ordinary store.
template <class T>
HALFTONE_INLINE void store_or_stream(T* p, f32 a, bool) {
    store(p, a);
}
/// Stores N vectors one after the other; N is even.
template <int N, class T>
HALFTONE_INLINE void store_vectors(T* p, const f32* v, bool non_temporal) {
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) store_or_stream(p + i * f32::lanes, v[i], non_temporal);
}
template <int N, class T>
HALFTONE_INLINE void store_or_stream(T* p, const vector_block<N>& v, bool non_temporal) {
    store_vectors<N>(p, v.v, non_temporal);
}

/// Loads two vectors of consecutive elements: either those at even and those at odd places, or the first and the second
/// half, whichever order is cheaper; store_reordered stores N vectors in the same order.
template <class T>
HALFTONE_INLINE void load_reordered(const T* p, f32& a, f32& b) {
    a = load(p);
    b = load(p + f32::lanes);
}
template <int N, class T>
HALFTONE_INLINE void store_reordered(T* p, const f32* v, bool non_temporal) {
    store_vectors<N>(p, v, non_temporal);
}

/// Stores four vectors at places `stride` elements apart.
template <class T>
HALFTONE_INLINE void store_rows(T* p, std::ptrdiff_t stride, const f32* v, bool non_temporal) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) store_or_stream(p + i * stride, v[i], non_temporal);
}

/// NaNs stay, since min and max return their second operand for them. Only for types T without float's subnormal
/// numbers: if the program has set denormals-are-zero, min and max turn these into zeros.
template <class T, vectors V>
HALFTONE_INLINE V clamp_to(const V& a) {
    constexpr auto largest = static_cast<float>(number_traits<T>::max);
    if constexpr (number_traits<T>::min_exponent <= number_traits<float>::min_exponent) {
        return select(less(splat(largest), abs(a)), copy_sign(splat(largest), a), a);
    } else {
        return max(splat(-largest), min(splat(largest), a));
    }
}

/// e^r - 1 for |r| <= 0.35.
template <vectors V>
HALFTONE_INLINE V expm1_near_zero(const V& r) {
    V p = fma(r, 1.9875691500e-4f, splat(1.3981999507e-3f));
    p = fma(p, r, 8.3334519073e-3f);
    p = fma(p, r, 4.1665795894e-2f);
    p = fma(p, r, 1.6666665459e-1f);
    p = fma(p, r, 5.0000001201e-1f);
    return fma(p, r * r, r);
}
/// e^r for |r| <= 0.3467, by the minimax polynomial of its degree whose first terms are 1 + r: relative error at most
/// 0.06 ulp.
template <vectors V>
HALFTONE_INLINE V exp_near_zero(const V& r) {
    V p = fma(r, 0x1.6a23f2p-10f, splat(0x1.123a0ap-7f));
    p = fma(p, r, 0x1.5558f2p-5f);
    p = fma(p, r, 0x1.555492p-3f);
    p = fma(p, r, 0x1.fffffcp-2f);
    p = fma(p, r, 1.0f);
    return fma(p, r, 1.0f);
}
/// e^x = (the result) 2^n; NaN for a NaN.
template <vectors V>
HALFTONE_INLINE V exp_significand(const V& x, V& n) {
    n = round_even(x * halftone::detail::log2_of_e);
    V r = fma(n, -0.693359375f, x);
    r = fma(n, 2.12194440e-4f, r);
    return exp_near_zero(r);
}

// Clamped to where e^x is 0 (e^-104) or infinity (e^89). NaNs pass, since max and min return their second operand for
// them.
template <vectors V>
HALFTONE_INLINE V exp(const V& x) {
    V n;
    const V p = exp_significand(min(splat(89.0f), max(splat(-104.0f), x)), n);
    return scale_by_power(p, n);
}
/// e^x for x <= 0, and up to 40.
template <vectors V>
HALFTONE_INLINE V exp_below_zero(const V& x) {
    V n;
    const V p = exp_significand(max(splat(-104.0f), x), n);
    return scale_down(p, n);
}

/// 2^x for x up to 60, and for every x if the set scales by all powers. By the minimax polynomial of its degree that is
/// 1 at 0: error at most 2.9e-6 between 0 and 1.
template <vectors V>
HALFTONE_INLINE V short_exp2_by_floor(const V& x) {
    const V r = above_floor(x);
    V p = fma(r, 0x1.b7f564p-7f, splat(0x1.abf9e2p-5f));
    p = fma(p, r, 0x1.ee2404p-3f);
    p = fma(p, r, 0x1.62d6cap-1f);
    return scale_by_floor(fma(p, r, 1.0f), x);
}
/// exp_below_zero for arguments from, or results to, numbers of 16 bits: relative error (0.875 + |x| / 16) 2^-18, in
/// half the time.
template <vectors V>
HALFTONE_INLINE V short_exp_below_zero(const V& x) {
    return short_exp2_by_floor(x * halftone::detail::log2_of_e);
}
template <class T>
inline constexpr bool is_short = sizeof(T) < sizeof(float);
/// The faster or the exact one of the two, as numbers of T require.
template <class T, vectors V>
HALFTONE_INLINE V exp_below_zero_for(const V& x) {
    return is_short<T> ? short_exp_below_zero(x) : exp_below_zero(x);
}

/// e^x - 1 as 2^n (e^r - 1) + (2^n - 1). All terms are halved until the end, so that 2^128 does not overflow.
template <vectors V>
HALFTONE_INLINE V expm1(const V& x) {
    const V bounded = min(splat(89.0f), max(splat(-104.0f), x));
    const V n = round_even(bounded * halftone::detail::log2_of_e);
    V r = fma(n, -0.693359375f, bounded);
    r = fma(n, 2.12194440e-4f, r);
    const V half_power = scale_by_power(splat(0.5f), n);
    const V half = fma(half_power, expm1_near_zero(r), half_power - 0.5f);
    const V result = select(less(abs(x), splat(1e-6f)), fma(x * 0.5f, x, x), half + half);  // not halved: exact if subnormal
    return select(equal(x, splat(0.0f)), x, result);                                        // -0 keeps its sign
}

/// 2^x = (the result) 2^n; NaN for a NaN. The polynomial's error is at most 0.2 ulp.
template <vectors V>
HALFTONE_INLINE V exp2_significand(const V& x, V& n) {
    n = round_even(x);
    const V r = x - n;
    V p = fma(r, 0x1.41fbaep-13f, splat(0x1.5f3e6ap-10f));
    p = fma(p, r, 0x1.3b2d4ep-7f);
    p = fma(p, r, 0x1.c6aee8p-5f);
    p = fma(p, r, 0x1.ebfbdcp-3f);
    p = fma(p, r, 0x1.62e430p-1f);
    return fma(p, r, 1.0f);
}
template <vectors V>
HALFTONE_INLINE V exp2(const V& x) {
    V n;
    const V p = exp2_significand(min(splat(129.0f), max(splat(-160.0f), x)), n);
    return scale_by_power(p, n);
}
/// 2^x in fewer instructions than exp2, for x up to 60, and for every x if the set scales by all powers. The
/// polynomial's error is at most 0.3 ulp; its terms are added in pairs (Estrin's scheme), a shorter chain of dependent
/// instructions.
template <vectors V>
HALFTONE_INLINE V exp2_by_floor(const V& x) {
    const V r = above_floor(x), square = r * r;
    const V low = fma(r, 0x1.62e430p-1f, splat(1.0f)), middle = fma(r, 0x1.c6807ep-5f, splat(0x1.ebfd6ap-3f));
    const V high = fma(square, 0x1.cf6ae0p-13f, fma(r, 0x1.4375d4p-10f, splat(0x1.3d6f24p-7f)));
    return scale_by_floor(fma(fma(high, square, middle), square, low), x);
}
/// 2^x for x <= 0, and up to 60.
template <vectors V>
HALFTONE_INLINE V exp2_below_zero(const V& x) {
    V n;
    const V p = exp2_significand(max(splat(-160.0f), x), n);
    return scale_down(p, n);
}

template <vectors V>
HALFTONE_INLINE V log(const V& x) {
    constexpr float smallest_normal = 1.17549435e-38f;
    const f32 infinity = splat(__builtin_inff());
    const auto subnormal = less(x, splat(smallest_normal));
    V m;
    V e = split_exponent(select(subnormal, x * 8388608.0f, x), m);
    e = select(subnormal, e - 23.0f, e);
    // m in [sqrt(1/2), sqrt(2)), so that a short series around 1 suffices.
    const auto low = less(m, splat(0.707106781186547524f));
    e = select(low, e - 1.0f, e);
    const V t = select(low, m + m, m) - 1.0f;
    const V t2 = t * t;
    V p = fma(t, 7.0376836292e-2f, splat(-1.1514610310e-1f));
    p = fma(p, t, 1.1676998740e-1f);
    p = fma(p, t, -1.2420140846e-1f);
    p = fma(p, t, 1.4249322787e-1f);
    p = fma(p, t, -1.6668057665e-1f);
    p = fma(p, t, 2.0000714765e-1f);
    p = fma(p, t, -2.4999993993e-1f);
    p = fma(p, t, 3.3333331174e-1f);
    V y = fma(e, -2.12194440e-4f, t * t2 * p);
    y = fma(t2, -0.5f, y);
    y = fma(e, 0.693359375f, t + y);
    y = select(less_equal(infinity, x), infinity, y);
    y = select(equal(x, splat(0.0f)), -infinity, y);
    return select(less_equal(splat(0.0f), x), y, splat(__builtin_nanf("")));
}

/// log(1 + x) as log(u) + (the rounding error of u) / u, where u is 1 + x rounded. For x > 0 and +0.
template <vectors V>
HALFTONE_INLINE V log1p_above_zero(const V& x) {
    const V u = 1.0f + x;
    const V left_out = (x - (u - 1.0f)) / u;
    // At -1 and at infinity the quotient is NaN; the result is log(u).
    return select(equal(left_out, left_out), log(u) + left_out, log(u));
}
/// log(1 + x) for every x; -0 keeps its sign.
template <vectors V>
HALFTONE_INLINE V log1p(const V& x) { return select(equal(x, splat(0.0f)), x, log1p_above_zero(x)); }

template <vectors V>
HALFTONE_INLINE V tanh(const V& x) {
    const V z = abs(x);
    const V s = x * x;
    V p = fma(s, -5.70498872745e-3f, splat(2.06390887954e-2f));
    p = fma(p, s, -5.37397155531e-2f);
    p = fma(p, s, 1.33314422036e-1f);
    p = fma(p, s, -3.33332819422e-1f);
    const V small = fma(p * s, x, x);
    // tanh(10) rounds to 1; NaNs pass, since min returns its second operand for them.
    const V e = exp(min(splat(20.0f), z + z));
    const V large = 1.0f - 2.0f / (e + 1.0f);
    return copy_sign(select(less(z, splat(0.625f)), small, large), x);  // the sign also of a zero
}

/// The error function as Juffa writes it in float: an odd polynomial below 0.93, beyond it 1 - e^(a polynomial of |x|). Both
/// polynomials are his.
template <vectors V>
HALFTONE_INLINE V erf(const V& x) {
    const V z = min(splat(4.0f), abs(x));  // erf(4) rounds to 1; NaNs pass, since min returns its second operand for them
    const V s = z * z;
    V p = fma(s, -5.96761703e-4f, splat(4.99119423e-3f));
    p = fma(p, s, -2.67681349e-2f);
    p = fma(p, s, 1.12819925e-1f);
    p = fma(p, s, -3.76125336e-1f);
    p = fma(p, s, 1.28379166e-1f);
    const V small = fma(p, z, z);
    V n = fma(z, -1.72853470e-5f, splat(3.83197126e-4f));
    n = fma(n, s, fma(z, -3.88396438e-3f, splat(2.42546219e-2f)));
    n = fma(n, z, -1.06777877e-1f);
    n = fma(n, z, -6.34846687e-1f);
    n = fma(n, z, -1.28717512e-1f);
    const V large = 1.0f - exp_below_zero(fma(n, z, -z));
    return copy_sign(select(less(z, splat(0.927734375f)), small, large), x);  // the sign also of a zero
}

template <vectors V>
HALFTONE_INLINE V rsqrt(const V& x) { return 1.0f / sqrt(x); }

/// e^-|x|, which does not overflow: sigmoid and its relatives are computed from it.
template <vectors V>
HALFTONE_INLINE V exp_of_minus_abs(const V& x) { return exp_below_zero(-abs(x)); }

/// log(1 + e^x).
template <vectors V>
HALFTONE_INLINE V softplus(const V& x) { return max(splat(0.0f), x) + log1p_above_zero(exp_of_minus_abs(x)); }

template <vectors V>
HALFTONE_INLINE V sigmoid(const V& x) {
    const V e = exp_of_minus_abs(x);
    return select(less(x, splat(0.0f)), e, splat(1.0f)) / (1.0f + e);
}
/// The derivative of sigmoid.
template <vectors V>
HALFTONE_INLINE V sigmoid_derivative(const V& x) {
    const V e = exp_of_minus_abs(x), d = 1.0f + e;
    return e / (d * d);
}
/// The derivative of tanh.
template <vectors V>
HALFTONE_INLINE V tanh_derivative(const V& x) { return 4.0f * sigmoid_derivative(x + x); }

// The last functions take the type T of their results: for 16 bits or fewer a shorter polynomial suffices, and for
// significands of 8 bits or fewer the shortest.

template <class T>
inline constexpr bool is_rough = is_short<T> && !std::is_same_v<T, float16>;

/// 2^x for the same x as short_exp2_by_floor. The polynomial's error is at most 7.5e-5 between 0 and 1.
template <vectors V>
HALFTONE_INLINE V rough_exp2_by_floor(const V& x) {
    const V r = above_floor(x);
    V p = fma(r, 0x1.3f96a4p-4f, splat(0x1.cefc4cp-3f));
    p = fma(p, r, 0x1.64444cp-1f);
    return scale_by_floor(fma(p, r, 0x1.fff632p-1f), x);
}

/// x / (1 + 2^n): x times the sigmoid of -n log 2.
template <class T, vectors V>
HALFTONE_INLINE V over_one_and_power(const V& x, const V& n) {
    const auto exp2 = [](const V& power) __attribute__((always_inline)) {
        if constexpr (is_rough<T>) {
            return rough_exp2_by_floor(power);
        } else if constexpr (is_short<T>) {
            return short_exp2_by_floor(power);
        } else if constexpr (scales_by_all_powers) {
            return exp2_by_floor(power);
        } else {
            return exp2_below_zero(power);
        }
    };
    const auto over = [](const V& a, const V& b) __attribute__((always_inline)) {
        if constexpr (is_rough<T>) {
            return approximate_quotient(a, b);
        } else {
            return a / b;
        }
    };
    if constexpr (scales_by_all_powers) {
        return over(x, 1.0f + exp2(n));
    } else {
        const V e = exp2(-abs(n));
        return over(select(less(splat(0.0f), n), x * e, x), 1.0f + e);
    }
}
/// The derivative of x / (1 + 2^n), given the derivative of -n log 2, for |n| up to 60. It crosses zero, so that its
/// error is absolute and T matters less.
template <class T, vectors V, vectors S>
HALFTONE_INLINE V over_one_and_power_derivative(const V& x, const V& n, const S& slope) {
    const V e = is_short<T> ? short_exp2_by_floor(n) : exp2_by_floor(n), whole = 1.0f / (1.0f + e);
    return fma(whole * (e * whole), x * slope, whole);
}

/// x sigmoid(x).
template <class T = float, vectors V>
HALFTONE_INLINE V silu(const V& x) { return over_one_and_power<T>(x, x * -halftone::detail::log2_of_e); }
/// The derivative of silu.
template <class T = float, vectors V>
HALFTONE_INLINE V silu_derivative(const V& x) {
    const V bounded = min(splat(40.0f), max(splat(-40.0f), x));  // beyond 40 the derivative is 0 or 1 to within 2^-50
    return over_one_and_power_derivative<T>(bounded, bounded * -halftone::detail::log2_of_e, splat(1.0f));
}

/// GPT-2's gelu, x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, computed as x sigmoid(t), where t is twice the
/// argument of tanh; this form has no cancellation (Hendrycks and Gimpel, "Gaussian error linear units", 2016). This
/// function gives -t / (x log 2) from x^2: exponentials of t are computed as powers of two.
template <vectors V>
HALFTONE_INLINE V gelu_exponent(const V& square) {
    return fma(square, -0.1029432395800235f, splat(-2.302208198144325f));
}
template <class T = float, vectors V>
HALFTONE_INLINE V gelu(const V& x) { return over_one_and_power<T>(x, x * gelu_exponent(x * x)); }
template <class T = float, vectors V>
HALFTONE_INLINE V gelu_derivative(const V& x) {
    const V bounded = min(splat(7.0f), max(splat(-7.0f), x));  // beyond 7 the derivative is 0 or 1 to within 2^-45
    const V square = bounded * bounded;
    return over_one_and_power_derivative<T>(bounded, bounded * gelu_exponent(square),
                                       fma(square, 0.214064448817803f, splat(1.59576912160573f)));
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
