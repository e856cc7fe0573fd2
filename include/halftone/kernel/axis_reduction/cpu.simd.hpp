// SPDX-License-Identifier: MIT
/// \file
/// Reduces blocks of floats to one float and rows of floats to one row, computes the gradients of these, and converts
/// other types to floats and back. The functions that depend on the element type only convert, and those that reduce
/// only take floats, so that a further element type costs two functions.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/axis_reduction/axis_reduction.hpp>
#include <halftone/kernel/common/rows/walk.hpp>

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
/// to[i * stride] = (or +=) from[i], rounded.
template <class Y>
void narrow_elements(const float* from, extent count, void* to, extent stride, write_mode mode) {
    Y* const y = static_cast<Y*>(to);
    const bool adds = mode == write_mode::add;
    if (stride != 1) {
        for (extent i = 0; i < count; ++i)
            y[i * stride] = static_cast<Y>(adds ? static_cast<float>(y[i * stride]) + from[i] : from[i]);
        return;
    }
    for_vectors(
        count, [&](extent j, int, auto n) __attribute__((always_inline)) {
            const f32 v = load(from + j, n);
            store(y + j, adds ? load(y + j, n) + v : v, n);
        });
}

template <kernel::axis_term Term>
HALFTONE_INLINE f32 axis_term_of(f32 x, f32 p) {
    using term = kernel::axis_term;
    if constexpr (Term == term::square) return (x - p) * (x - p);
    if constexpr (Term == term::exponential) return exp(x - p);
    if constexpr (Term == term::equal) return select(equal(x, p), splat(1.0f), splat(0.0f));
    if constexpr (Term == term::product) return select(equal(x, splat(0.0f)), p, x);
    return x;
}
template <kernel::axis_term Term>
HALFTONE_INLINE f32 axis_combine(f32 a, f32 b) {
    using term = kernel::axis_term;
    if constexpr (Term == term::maximum || Term == term::minimum) {
        // b if it is larger (or smaller) than a, or NaN; a NaN in a counts as larger (or smaller) than any b.
        const mask is_number = equal(b, b), beyond = Term == term::maximum ? less(a, b) : less(b, a);
        return select(either(beyond, complement(is_number)), b, a);
    } else if constexpr (Term == term::product) {
        return a * b;
    } else {
        return a + b;
    }
}

/// The terms of at most axis_block floats, combined.
template <kernel::axis_term Term>
float reduce_block(const float* x, extent count, float parameter) {
    constexpr float nothing = kernel::nothing_of(Term);
    const f32 p = splat(parameter);
    four_vectors all = broadcast_four(nothing);
    for_vectors_unrolled(
        count, [&](extent j, int k, auto n) __attribute__((always_inline)) {
            const f32 t = keep(axis_term_of<Term>(load(x + j, n), p), n, splat(nothing));
            all.v[k] = axis_combine<Term>(all.v[k], t);
        });
    const f32 one = axis_combine<Term>(axis_combine<Term>(all.v[0], all.v[1]), axis_combine<Term>(all.v[2], all.v[3]));
    if constexpr (kernel::is_choice(Term) || Term == kernel::axis_term::product) {
        float lanes[f32::lanes], found = nothing;
        store(lanes, one);
        for (const float lane : lanes) found = kernel::combine<Term>(found, lane);
        return found;
    } else {
        return sum(one);
    }
}

/// all[j] = the terms of some rows of floats, combined with the previous all[j]; p[j] is the parameter of column j.
/// Four rows at a time are combined before they are added to `all`.
template <kernel::axis_term Term>
void reduce_rows(extent rows, extent width, const float* x, extent stride, const float* p, float* all) {
    extent i = 0;
    for (; i + 4 <= rows; i += 4, x += 4 * stride) {
        for_vectors(
            width, [&](extent j, int, auto n) __attribute__((always_inline)) {
                const f32 of = load(p + j, n);
                const auto term = [&](int row) __attribute__((always_inline)) {
                    return axis_term_of<Term>(load(x + row * stride + j, n), of);
                };
                const f32 four =
                    axis_combine<Term>(axis_combine<Term>(term(0), term(1)), axis_combine<Term>(term(2), term(3)));
                store(all + j, axis_combine<Term>(load(all + j, n), four), n);
            });
    }
    for (; i < rows; ++i, x += stride) {
        for_vectors(
            width, [&](extent j, int, auto n) __attribute__((always_inline)) {
                const f32 term = axis_term_of<Term>(load(x + j, n), load(p + j, n));
                store(all + j, axis_combine<Term>(load(all + j, n), term), n);
            });
    }
}

/// The gradient of an element x from its output's gradient q; p is the value of the output that the forward pass has
/// kept.
template <kernel::axis_operation Operation>
HALFTONE_INLINE f32 axis_share(f32 x, f32 p, f32 q) {
    using enum kernel::axis_operation;
    if constexpr (Operation == var) return (x - p) * q;
    if constexpr (Operation == logsumexp) return exp(x - p) * q;
    if constexpr (Operation == amax || Operation == amin) return select(equal(x, p), q, q * 0.0f);
    if constexpr (Operation == prod) return select(equal(x, splat(0.0f)), q, q * (p / x));
    return q;
}
/// For one output p and q point to single floats; for a row of outputs they point to rows.
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
