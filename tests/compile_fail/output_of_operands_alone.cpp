// SPDX-License-Identifier: MIT
// expect: halftone: this policy keeps numbers in a type that only products read, such as ht::tfloat32
// expect: take ht::with_output<P, float>
#include <halftone/policy/check.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using output = float;
#else
using output = ht::tfloat32;
#endif
static_assert(ht::check_policy<ht::with_output<ht::tf32, output>>());
