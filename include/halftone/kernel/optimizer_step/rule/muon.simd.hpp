// SPDX-License-Identifier: MIT
/// \file
/// The elementwise updates of Muon; V: a float, or a vector of floats.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/optimizer_step/rule/muon.hpp>

#if !defined(HALFTONE_RULE)
#define HALFTONE_RULE HALFTONE_INLINE  // host only; device/floats.hpp compiles it for GPUs
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

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

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone

#undef HALFTONE_RULE
