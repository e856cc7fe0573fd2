// SPDX-License-Identifier: MIT
// expect: halftone: this policy keeps or sums numbers in eight bits, where updates and sums get lost; only `compute` and `grad`, the operands of products, can have them
#include <halftone/policy.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::with_state<ht::fp8_hybrid, ht::bfloat16>;
#else
using mine = ht::with_state<ht::fp8_hybrid, ht::float8_e4m3>;
#endif
static_assert(ht::check_policy<mine>());
