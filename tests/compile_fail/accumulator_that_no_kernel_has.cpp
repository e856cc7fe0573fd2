// SPDX-License-Identifier: MIT
// expect: halftone: this policy sums in double (role `accum`) what it multiplies in less (role `compute`)
#include <halftone/policy.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
static_assert(ht::check_policy<ht::full_fp64>());
#else
static_assert(ht::check_policy<ht::with_accum<ht::amp_bf16, double>>());
#endif
