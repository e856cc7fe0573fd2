// SPDX-License-Identifier: MIT
// expect: halftone: numbers are split into bfloat16, two of them (which hold every float16) or three (which hold every float)
// expect: take ht::split<ht::bfloat16, 2> or ht::split<ht::bfloat16, 3>
#include <halftone/policy/check.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using compute = ht::split<ht::bfloat16, 3>;
#else
using compute = ht::split<ht::float16, 3>;
#endif
static_assert(ht::check_policy<ht::with_compute<ht::full_fp32, compute>>());
