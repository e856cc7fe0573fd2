// SPDX-License-Identifier: MIT
/// \file
/// Assigns a parameter, or leaves it unchanged; V: a float, or a vector of floats.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/optimizer_step/rule/assign.hpp>

#if !defined(HALFTONE_RULE)
#define HALFTONE_RULE HALFTONE_INLINE  // host only; device/floats.hpp compiles it for GPUs
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <class V>
HALFTONE_RULE V updated(const kernel::assign_rule::scalars& s, V w, V g, V (&)[1], bool) {
    return s.takes ? g : w;
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone

#undef HALFTONE_RULE
