// SPDX-License-Identifier: MIT
// expect: halftone: this policy reads gradients in eight bits (role `grad`), but activations and weights in more (role `compute`): nothing scales gradients there; start from ht::fp8_hybrid
#include <halftone/policy.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::with_grad<ht::fp8_hybrid, ht::bfloat16>;
#else
using mine = ht::with_grad<ht::amp_bf16, ht::float8_e5m2>;
#endif
static_assert(ht::check_policy<mine>());
