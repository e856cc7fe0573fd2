// SPDX-License-Identifier: MIT
/// \file
/// The updates of a parameter by each rule; V: a float, a double, or a vector of floats.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set, ../device/floats.hpp for single numbers.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/optimizer_step/rule/all.hpp>

#if !defined(HALFTONE_RULE)
#define HALFTONE_RULE HALFTONE_INLINE  // host only; device/floats.hpp compiles it for GPUs
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

// Adafactor.

/// The variance of an element from the values of its row and its column.
template <class V>
HALFTONE_RULE V adafactor_variance(V row, V column, V least) {
    const V product = row * column;
    return select(less(product, least), least, product);
}

template <class V>
HALFTONE_RULE V updated(const kernel::adafactor_rule::scalars& s, V w, V g, V (&moments)[1], bool) {
    const V variance = adafactor_variance<V>(splat(s.row), moments[0], splat(s.least));
    return fma(g / sqrt(variance), splat(-s.step), w * s.decay);
}

// AdamW.

template <class V, class Real>
HALFTONE_RULE V updated(const kernel::adamw_rule::scalars_in<Real>& s, V w, V g, V (&moments)[2], bool) {
    V &m = moments[0], &v = moments[1];
    m = fma(g - m, splat(s.first_weight), m);
    v = fma(g * s.second_weight, g, v * s.second_decay);
    const V denominator = fma(sqrt(v), s.root_scale, splat(s.epsilon));
    return fma(w, s.decay, m * -s.step_size / denominator);
}

// The rule that assigns.

template <class V>
HALFTONE_RULE V updated(const kernel::assign_rule::scalars& s, V w, V g, V (&)[1], bool) {
    return s.takes ? g : w;
}

// Lion.

template <class V, class Real>
HALFTONE_RULE V updated(const kernel::lion_rule::scalars_in<Real>& s, V w, V g, V (&moments)[1], bool) {
    V& m = moments[0];
    const V direction = fma(m, s.sign_decay, g * s.sign_weight);
    const V down = select(less(splat(0.0f), direction), splat(-s.lr), splat(0.0f));
    const V move = select(less(direction, splat(0.0f)), splat(s.lr), down);
    m = fma(m, s.mean_decay, g * s.mean_weight);
    return fma(w, s.decay, move);
}

// Muon: its momentum, and the step by the orthogonal direction.

template <class V>
HALFTONE_RULE V updated(const kernel::muon_momentum_rule::scalars& s, V, V g, V (&moments)[1], bool) {
    V& m = moments[0];
    m = fma(g - m, s.gradient_weight, m);
    return fma(g - m, s.correction, m);
}
template <class V, class Real>
HALFTONE_RULE V updated(const kernel::muon_rule::scalars_in<Real>& s, V w, V g, V (&)[1], bool) {
    return fma(g, s.move, w * s.decay);
}

// SGD.

template <class V, class Real>
HALFTONE_RULE V updated(const kernel::sgd_rule::scalars_in<Real>& s, V w, V g, V (&momentum)[1], bool keeps) {
    V d = fma(w, s.decay, g);
    if (keeps) {
        V& m = momentum[0];
        m = fma(m, s.momentum, d * s.gradient_weight);
        d = s.nesterov != 0.0f ? fma(m, s.nesterov, d) : m;
    }
    return fma(d, -s.lr, w);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone

#undef HALFTONE_RULE
