// SPDX-License-Identifier: MIT
// expect: halftone: the accumulator of this policy (role `accum`) is narrower than the operands it sums
// expect: widen it: ht::with_accum<P, float>
#include <halftone/policy/check.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using sums = float;
#else
using sums = ht::bfloat16;
#endif
using mine = ht::recipe<ht::amp_bf16, ht::rule<"head", ht::with_accum<ht::tf32, sums>>>;
static_assert(ht::check_policy<ht::at<mine, "head">>());
