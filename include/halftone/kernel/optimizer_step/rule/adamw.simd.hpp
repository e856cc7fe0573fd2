// SPDX-License-Identifier: MIT
/// \file
/// AdamW's update of a parameter; V: a float, or a vector of floats.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/optimizer_step/rule/adamw.hpp>

#if !defined(HALFTONE_RULE)
#define HALFTONE_RULE HALFTONE_INLINE  // host only; device/floats.hpp compiles it for GPUs
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <class V, class Real>
HALFTONE_RULE V updated(const kernel::adamw_rule::scalars_in<Real>& s, V w, V g, V (&moments)[2], bool) {
    V &m = moments[0], &v = moments[1];
    m = fma(g - m, splat(s.first_weight), m);
    v = fma(g * s.second_weight, g, v * s.second_decay);
    const V denominator = fma(sqrt(v), s.root_scale, splat(s.epsilon));
    return fma(w, s.decay, m * -s.step_size / denominator);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone

#undef HALFTONE_RULE
