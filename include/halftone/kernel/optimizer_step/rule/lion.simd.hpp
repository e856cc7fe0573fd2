// SPDX-License-Identifier: MIT
/// \file
/// Lion's update of a parameter; V: a float, or a vector of floats.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/optimizer_step/rule/lion.hpp>

#if !defined(HALFTONE_RULE)
#define HALFTONE_RULE HALFTONE_INLINE  // host only; device/floats.hpp compiles it for GPUs
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <class V, class Real>
HALFTONE_RULE V updated(const kernel::lion_rule::scalars_in<Real>& s, V w, V g, V (&moments)[1], bool) {
    V& m = moments[0];
    const V direction = fma(m, s.sign_decay, g * s.sign_weight);
    const V down = select(less(splat(0.0f), direction), splat(-s.lr), splat(0.0f));
    const V move = select(less(direction, splat(0.0f)), splat(s.lr), down);
    m = fma(m, s.mean_decay, g * s.mean_weight);
    return fma(w, s.decay, move);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone

#undef HALFTONE_RULE
