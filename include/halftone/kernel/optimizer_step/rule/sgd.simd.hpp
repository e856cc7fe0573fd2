// SPDX-License-Identifier: MIT
/// \file
/// The update of a parameter by stochastic gradient descent; V: a float, or a vector of floats.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/optimizer_step/rule/sgd.hpp>

#if !defined(HALFTONE_RULE)
#define HALFTONE_RULE HALFTONE_INLINE  // host only; device/floats.hpp compiles it for GPUs
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

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
