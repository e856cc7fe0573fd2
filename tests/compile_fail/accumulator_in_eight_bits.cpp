// SPDX-License-Identifier: MIT
// expect: halftone: this policy keeps or sums numbers in eight bits, where updates and sums get lost
#include <halftone/policy.hpp>

namespace ht = halftone;

// As wide as the operands, and yet a sum of a few products stops growing.
#if defined(HALFTONE_TEST_RIGHT)
struct mine : ht::fp8_hybrid {};
#else
struct mine : ht::fp8_hybrid {
    using accum = ht::float8_e4m3;
};
#endif
static_assert(ht::check_policy<mine>());
