// SPDX-License-Identifier: MIT
/// \file
/// A parameter's step of stochastic gradient descent; V: a float, or a vector of them.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/optimizer_step/rule/sgd.hpp>

#if !defined(HALFTONE_RULE)
#define HALFTONE_RULE HALFTONE_INLINE  // for the host alone: a GPU knows no vectors of the CPU's (device/floats.hpp)
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <class V>
HALFTONE_RULE V updated(const kernel::sgd_rule::scalars& s, V w, V g, V (&momentum)[1], bool keeps) {
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
