// SPDX-License-Identifier: MIT
/// \file
/// Adafactor's update of a parameter; V: a float, or a vector of floats.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/optimizer_step/rule/adafactor.hpp>

#if !defined(HALFTONE_RULE)
#define HALFTONE_RULE HALFTONE_INLINE  // host only; device/floats.hpp compiles it for GPUs
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

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

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone

#undef HALFTONE_RULE
