// SPDX-License-Identifier: MIT
// expect: halftone: this policy keeps numbers in a type that only products read
// expect: float likewise for `param`
#include <halftone/policy/check.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using param = float;
#else
using param = ht::split<ht::bfloat16, 3>;
#endif
static_assert(ht::check_policy<ht::with_param<ht::split_fp32, param>>());
