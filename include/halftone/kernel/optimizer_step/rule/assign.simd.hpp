// SPDX-License-Identifier: MIT
/// \file
/// A parameter that is assigned or left; V: a float, or a vector of them.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/optimizer_step/rule/assign.hpp>

#if !defined(HALFTONE_RULE)
#define HALFTONE_RULE HALFTONE_INLINE  // for the host alone: a GPU knows no vectors of the CPU's (device/floats.hpp)
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
