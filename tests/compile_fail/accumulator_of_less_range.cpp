// SPDX-License-Identifier: MIT
// expect: halftone: the accumulator of this policy (role `accum`) is narrower than the operands it sums
// fp16 has more digits than bf16, and a sum of bf16 numbers still overflows it.
#include <halftone/policy/check.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
static_assert(ht::check_policy<ht::with_accum<ht::amp_fp16, ht::float16>>());
#else
static_assert(ht::check_policy<ht::with_accum<ht::amp_bf16, ht::float16>>());
#endif
