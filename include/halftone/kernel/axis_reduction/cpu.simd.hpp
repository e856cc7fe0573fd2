// SPDX-License-Identifier: MIT
/// \file
/// Reduces blocks of floats to one float and rows of floats to one row, computes the gradients of these, and converts
/// other types to floats and back. The functions that depend on the element type only convert, and those that reduce
/// only take floats, so that a further element type costs two functions.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstdint>
#include <cstring>

#include <halftone/kernel/axis_reduction/axis_reduction.hpp>
#include <halftone/kernel/common/rows/walk.hpp>
#include <halftone/number/constants.hpp>
#include <halftone/number/in_float.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// to[i] = from[i * stride], as floats.
template <class X>
void widen_elements(const void* from, extent stride, extent count, float* to) {
    const X* const x = static_cast<const X*>(from);
    if (stride != 1) {
        for (extent i = 0; i < count; ++i) to[i] = static_cast<float>(x[i * stride]);
        return;
    }
    for_vectors(
        count, [&](extent j, int, auto n) __attribute__((always_inline)) { store(to + j, load(x + j, n), n); });
}
/// to[r * width + j] = from[r * stride + j], as floats. Rows that are read four rows later are prefetched, if they are
/// among the first `known` ones: a processor's own prefetching ends with a page.
template <class X>
void widen_rows(const void* from, extent stride, extent rows, extent width, extent known, float* to) {
    const X* x = static_cast<const X*>(from);
    for (extent i = 0; i < rows; ++i, x += stride, to += width) {
        const X* const later = i + 4 < known ? x + 4 * stride : x;
        for_vectors(
            width, [&](extent j, int, auto n) __attribute__((always_inline)) {
                __builtin_prefetch(later + j);
                store(to + j, load(x + j, n), n);
            });
    }
}
/// to[i * stride] = (or +=) from[i], rounded.
template <class Y>
void narrow_elements(const float* from, extent count, void* to, extent stride, write_mode mode) {
    Y* const y = static_cast<Y*>(to);
    const bool adds = mode == write_mode::add;
    if (stride != 1) {
        for (extent i = 0; i < count; ++i)
            y[i * stride] = static_cast<Y>(adds ? halftone::detail::in_float(y[i * stride]) + from[i] : from[i]);
        return;
    }
    for_vectors(
        count, [&](extent j, int, auto n) __attribute__((always_inline)) {
            const f32 v = load(from + j, n);
            store(y + j, adds ? load(y + j, n) + v : v, n);
        });
}

/// e^x for x <= 2; 0 below -104. Where 2^n costs one instruction: e^x = 2^n 2^(k/8) e^r, with |r| <= log(2) / 16, for which
/// a polynomial of degree 3 suffices. Relative error 2.1 2^-24.
HALFTONE_INLINE f32 exp_up_to_two(f32 x) {
    if constexpr (scales_by_all_powers) {
        alignas(32) static constexpr float powers[] = {1.0f,          0x1.172b84p0f, 0x1.306fe0p0f, 0x1.4bfdaep0f,
                                                       0x1.6a09e6p0f, 0x1.8ace54p0f, 0x1.ae89fap0f, 0x1.d5818ep0f};
        constexpr float round_to_eighths = 0x1.8p20f;
        const f32 bounded = max(splat(-104.0f), x);
        const f32 shifted = fma(bounded, splat(halftone::detail::log2_of_e), splat(round_to_eighths));
        const f32 n = shifted - splat(round_to_eighths);  // n + k / 8
        const f32 r = fma(n, splat(2.12194440e-4f), fma(n, splat(-0.693359375f), bounded));
        const f32 power = floats_of(look_up(load_small_table(powers), words_of(shifted)));
        const f32 above_one = fma(fma(r, splat(0x1.555b7ep-3f), splat(0x1.0007b4p-1f)), r, splat(1.0f)) * r;
        return scale_by_floor(fma(power, above_one, power), n);
    } else {
        return exp_below_zero(x);
    }
}

template <kernel::axis_term Term>
HALFTONE_INLINE f32 axis_term_of(f32 x, f32 p) {
    using term = kernel::axis_term;
    if constexpr (Term == term::square) return (x - p) * (x - p);
    if constexpr (Term == term::exponential) return exp_up_to_two(x - p);
    if constexpr (Term == term::equal) return select(equal(x, p), splat(1.0f), splat(0.0f));
    if constexpr (Term == term::product) return select(equal(x, splat(0.0f)), p, x);
    return x;
}
/// NaNs in b are ignored by maxima and minima.
template <kernel::axis_term Term>
HALFTONE_INLINE f32 axis_combine(f32 a, f32 b) {
    using term = kernel::axis_term;
    if constexpr (Term == term::maximum) return max(b, a);
    if constexpr (Term == term::minimum) return min(b, a);
    if constexpr (Term == term::product) return a * b;
    return a + b;
}

/// The combination of four vectors, in pairs.
template <kernel::axis_term Term>
HALFTONE_INLINE f32 combine_four(const f32* v) {
    return axis_combine<Term>(axis_combine<Term>(v[0], v[1]), axis_combine<Term>(v[2], v[3]));
}

/// What a pass finds besides the terms: for squares the sum of x - parameter, for exponentials the largest x.
template <kernel::axis_term Term>
inline constexpr kernel::axis_term found_besides =
    Term == kernel::axis_term::exponential ? kernel::axis_term::maximum : kernel::axis_term::value;
template <kernel::axis_term Term>
inline constexpr bool finds_more = Term == kernel::axis_term::exponential || Term == kernel::axis_term::square;

/// The terms of at most axis_block floats, combined; *more = what is found besides.
template <kernel::axis_term Term>
float reduce_block(const float* x, extent count, float parameter, float* more) {
    constexpr float nothing = kernel::nothing_of(Term);
    [[maybe_unused]] constexpr kernel::axis_term besides = found_besides<Term>;
    constexpr bool chooses = kernel::is_choice(Term), squares = Term == kernel::axis_term::square;
    const f32 p = splat(parameter);
    four_vectors all = broadcast_four(nothing), found = broadcast_four(kernel::nothing_of(besides));
    mask numbers[4];
    for (mask& m : numbers) m = equal(splat(nothing), splat(nothing));
    for_vectors_unrolled(
        count, [&](extent j, int k, auto n) __attribute__((always_inline)) {
            const f32 v = load(x + j, n);
            all.v[k] = axis_combine<Term>(all.v[k], keep(axis_term_of<Term>(v, p), n, splat(nothing)));
            if constexpr (chooses) numbers[k] = both(numbers[k], equal(v, v));
            if constexpr (finds_more<Term>)
                found.v[k] =
                    axis_combine<besides>(found.v[k], keep(squares ? v - p : v, n, splat(kernel::nothing_of(besides))));
        });
    if constexpr (finds_more<Term>) *more = squares ? sum(found) : maximum(found);
    if constexpr (chooses) {
        if (any(complement(both(both(numbers[0], numbers[1]), both(numbers[2], numbers[3])))))
            return __builtin_nanf("");
    }
    const f32 one = combine_four<Term>(all.v);
    if constexpr (chooses || Term == kernel::axis_term::product) {
        float lanes[f32::lanes], chosen = nothing;
        store(lanes, one);
        for (const float lane : lanes) chosen = kernel::combine<Term>(chosen, lane);
        return chosen;
    } else {
        return sum(one);
    }
}

/// Combines Rows rows of floats with all[j], in pairs before they meet all[j]; p[j] is the parameter of column j. Combines
/// what is found besides with more[j]. Prefetches the rows from `later` on, if it is not nullptr.
template <kernel::axis_term Term, int Rows>
HALFTONE_INLINE void reduce_few_rows(extent width, const float* x, extent stride, const float* later, const float* p,
                                     float* all, float* more) {
    [[maybe_unused]] constexpr kernel::axis_term besides = found_besides<Term>;
    constexpr bool chooses = kernel::is_choice(Term), squares = Term == kernel::axis_term::square;
    for_vectors(
        width, [&](extent j, int, auto n) __attribute__((always_inline)) {
            const f32 of = load(p + j, n);
            f32 v[Rows], found[Rows];
#pragma GCC unroll 4
            for (int i = 0; i < Rows; ++i) {
                const f32 in = load(x + i * stride + j, n);
                if (later != nullptr) __builtin_prefetch(later + i * stride + j);
                found[i] = squares ? in - of : in;
                v[i] = axis_term_of<Term>(in, of);
            }
            f32 before = load(all + j, n);
            if constexpr (chooses && Rows == 4) {
                const mask numbers = both(both(equal(found[0], found[0]), equal(found[1], found[1])),
                                          both(equal(found[2], found[2]), equal(found[3], found[3])));
                before = select(numbers, before, splat(__builtin_nanf("")));
            }
            if constexpr (Rows == 4) {
                v[0] = combine_four<Term>(v);
                if constexpr (finds_more<Term>) found[0] = combine_four<besides>(found);
            }
            if constexpr (finds_more<Term>) store(more + j, axis_combine<besides>(load(more + j, n), found[0]), n);
            f32 together = axis_combine<Term>(before, v[0]);
            // A NaN stays one: max and min return their second operand then.
            if constexpr (chooses)
                together = select(both(equal(before, before), equal(v[0], v[0])), together, before + v[0]);
            store(all + j, together, n);
        });
}
/// Reduces any number of rows, four at a time, into `all` and, where a second result is found besides, `more`; rows
/// after the first `known` ones are not prefetched.
template <kernel::axis_term Term>
void reduce_rows(extent rows, extent width, const float* x, extent stride, extent known, const float* p, float* all,
                 float* more) {
    extent i = 0;
    for (; i + 4 <= rows; i += 4, x += 4 * stride)
        reduce_few_rows<Term, 4>(width, x, stride, i + 8 <= known ? x + 4 * stride : nullptr, p, all, more);
    for (; i < rows; ++i, x += stride) reduce_few_rows<Term, 1>(width, x, stride, nullptr, p, all, more);
}

/// Whether differences from p were small: their sum squared, divided by their number, is at most a quarter of the sum of
/// their squares, in all columns.
inline bool are_near_mean(extent width, float rows, const float* squares, const float* differences) {
    bool near = true;
    for_vectors(
        width, [&](extent j, int, auto n) __attribute__((always_inline)) {
            const f32 d = load(differences + j, n);
            near = near && !any(complement(less_equal(d * d * (4 / rows), load(squares + j, n))));
        });
    return near;
}
/// Whether the largest elements are at most p + 2, in all columns.
inline bool are_below(extent width, const float* largest, const float* p) {
    bool below = true;
    for_vectors(
        width, [&](extent j, int, auto n) __attribute__((always_inline)) {
            below = below && !any(complement(less_equal(load(largest + j, n), load(p + j, n) + 2.0f)));
        });
    return below;
}

// Half as many doubles as a vector has floats. The following functions handle whole vectors: arrays of columns have room.
constexpr int double_lanes = f32::lanes / 2;
using doubles = double __attribute__((vector_size(double_lanes * 8)));
using few_floats = float __attribute__((vector_size(double_lanes * 4)));
using few_integers = std::int32_t __attribute__((vector_size(double_lanes * 4)));
using long_integers = std::int64_t __attribute__((vector_size(double_lanes * 8)));

HALFTONE_INLINE doubles load_doubles(const double* p) {
    doubles r;
    std::memcpy(&r, p, sizeof r);
    return r;
}
HALFTONE_INLINE doubles load_doubles(const float* p) {
    few_floats r;
    std::memcpy(&r, p, sizeof r);
    return __builtin_convertvector(r, doubles);
}
HALFTONE_INLINE void store_doubles(double* p, doubles v) { std::memcpy(p, &v, sizeof v); }

// Tests of the bits, which hold if a program is compiled with -ffinite-math-only.
HALFTONE_INLINE long_integers magnitude_bits(doubles v) { return reinterpret_cast<long_integers>(v) & INT64_MAX; }
constexpr std::int64_t infinite_bits = std::int64_t{0x7ff} << 52;
HALFTONE_INLINE doubles finite_shift(doubles v) { return magnitude_bits(v) == infinite_bits ? doubles{} : v; }

template <kernel::axis_term Term>
HALFTONE_INLINE doubles axis_combine(doubles a, doubles b) {
    using term = kernel::axis_term;
    if constexpr (Term == term::maximum || Term == term::minimum) {
        const doubles chosen = (Term == term::maximum ? b > a : b < a) ? b : a;
        const doubles first = magnitude_bits(b) > infinite_bits ? b : chosen;
        return magnitude_bits(a) > infinite_bits ? a : first;
    } else if constexpr (Term == term::product) {
        return a * b;
    } else {
        return a + b;
    }
}
/// total[j] = total[j] combined with from[j]; from is floats or doubles.
template <kernel::axis_term Term, class From>
void fold_columns(extent width, const From* from, double* total) {
    for (extent j = 0; j < width; j += double_lanes)
        store_doubles(total + j, axis_combine<Term>(load_doubles(total + j), load_doubles(from + j)));
}

/// e^d for d <= 0, to 2^-50; 0 below -104; at d > 0 it is 1.
HALFTONE_INLINE doubles exp_of_gap(doubles d) {
    d = d < -104.0 ? doubles{} - 104.0 : d;
    d = d > 0.0 ? doubles{} : d;
    const few_integers n = __builtin_convertvector(d * halftone::detail::log2_of_e_in_double - 0.5, few_integers);
    const doubles r = d - __builtin_convertvector(n, doubles) * 0.6931471805599453;
    doubles p = doubles{} + 1.0 / 479001600;
    for (const double c : {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
                           1.0 / 24, 1.0 / 6, 1.0 / 2, 1.0, 1.0})
        p = p * r + c;
    const long_integers power = (__builtin_convertvector(n, long_integers) + 1023) << 52;
    return p * reinterpret_cast<doubles>(power);
}
/// total[j] is a sum of exponentials of differences from top[j]. Takes found[j] + above, if that is larger, in place of
/// top[j], and writes it, or 0 if it is infinite, to parameters[j].
inline void raise_columns(extent width, const float* found, double above, double* top, double* total,
                          float* parameters) {
    for (extent j = 0; j < width; j += double_lanes) {
        const doubles before = load_doubles(top + j), more = load_doubles(found + j) + above;
        const few_floats rounded = __builtin_convertvector(more, few_floats);
        const doubles largest =
            axis_combine<kernel::axis_term::maximum>(before, __builtin_convertvector(rounded, doubles));
        const doubles shift = finite_shift(largest);
        const few_floats subtracted = __builtin_convertvector(shift, few_floats);
        std::memcpy(parameters + j, &subtracted, sizeof subtracted);
        store_doubles(top + j, largest);
        store_doubles(total + j, load_doubles(total + j) * exp_of_gap(finite_shift(before) - shift));
    }
}
/// Adds sums[j], of differences from the largest element found[j], to total[j], of those from top[j], the largest of both.
inline void join_exponentials(extent width, const double* found, const double* sums, const double* top, double* total) {
    for (extent j = 0; j < width; j += double_lanes) {
        const doubles gap = finite_shift(load_doubles(found + j)) - finite_shift(load_doubles(top + j));
        store_doubles(total + j, load_doubles(total + j) + load_doubles(sums + j) * exp_of_gap(gap));
    }
}

/// Sums and sums of squares about the mean, of `before` elements a column, and of `count` further ones with the sums
/// more[j] and squares about their mean squares[j]: sums[j] and total[j] become those of both (Chan, Golub, LeVeque). The
/// means are quotients, so that those of equal elements are equal.
HALFTONE_INLINE void add_squares(double before, double count, doubles more, doubles squares, double* sums,
                                 double* total) {
    const double weight = before * count / (before + count);
    const doubles old = load_doubles(sums), apart = more / count - old / (before == 0 ? 1.0 : before);
    store_doubles(sums, old + more);
    store_doubles(total, load_doubles(total) + squares + apart * apart * weight);
}
/// The further ones by their squares about p[j] and the sum of their differences from it. p[j] becomes the mean of all.
inline void add_variances(extent width, double before, double count, float* p, const float* squares,
                          const float* differences, double* sums, double* total) {
    for (extent j = 0; j < width; j += double_lanes) {
        doubles off = load_doubles(differences + j);
        off = magnitude_bits(off) > infinite_bits ? doubles{} : off;  // of an infinite mean
        add_squares(before, count, load_doubles(p + j) * count + off,
                    load_doubles(squares + j) - off * off * (1 / count), sums + j, total + j);
        const few_floats mean = __builtin_convertvector(load_doubles(sums + j) * (1 / (before + count)), few_floats);
        std::memcpy(p + j, &mean, sizeof mean);
    }
}
/// The further ones by their sums and squares about the mean.
inline void join_variances(extent width, double before, double count, const double* more, const double* squares,
                           double* sums, double* total) {
    for (extent j = 0; j < width; j += double_lanes)
        add_squares(before, count, load_doubles(more + j), load_doubles(squares + j), sums + j, total + j);
}

/// The gradient of an element x from its output's gradient q; p is the value of the output that the forward pass has
/// kept.
template <kernel::axis_operation Operation>
HALFTONE_INLINE f32 axis_share(f32 x, f32 p, f32 q) {
    using enum kernel::axis_operation;
    if constexpr (Operation == var) return (x - p) * q;
    if constexpr (Operation == std_dev) return select(equal(q, splat(0.0f)), q, (x - p) * q);
    if constexpr (Operation == logsumexp) return exp(x - p) * q;
    if constexpr (Operation == amax || Operation == amin) return select(equal(x, p), q, q * 0.0f);
    if constexpr (Operation == prod) return select(equal(x, splat(0.0f)), q, q * (p / x));
    return q;
}
/// Stores each element's share of the gradient (axis_share). For one output p and q point to single floats; for a row
/// of outputs they point to rows.
template <kernel::axis_operation Operation>
void share_block(const float* x, extent count, const float* p, const float* q, bool is_row, float* to) {
    const f32 one_p = splat(*p), one_q = splat(*q);
    for_vectors(
        count, [&](extent j, int, auto n) __attribute__((always_inline)) {
            const f32 in = load(x + j, n);
            store(to + j,
                  is_row ? axis_share<Operation>(in, load(p + j, n), load(q + j, n))
                         : axis_share<Operation>(in, one_p, one_q),
                  n);
        });
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
