// SPDX-License-Identifier: MIT
// expect: halftone: the accumulator of this policy (role `accum`) is narrower than the operands of a backward product
// expect: halftone: the roles `input_grad` and `weight_grad` have no scales
#include <halftone/policy.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using wide = ht::with_weight_grad<ht::amp_bf16, float>;
using scaled = ht::with_weight_grad<ht::amp_bf16, ht::bfloat16>;
#else
using wide = ht::with_weight_grad<ht::with_accum<ht::amp_bf16, ht::bfloat16>, float>;
using scaled = ht::with_input_grad<ht::amp_bf16, ht::float8_e5m2>;
#endif
static_assert(ht::check_policy<wide>());
static_assert(ht::check_policy<scaled>());
