// SPDX-License-Identifier: MIT
// expect: halftone: numbers of a tensor that are so much smaller than its largest are zero in the eight bits that this policy scales
// expect: reached_number<1000000
// expect: largest_number<458752
#include <halftone/observe/lint/policy_lint.hpp>
#include <halftone/policy/presets.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
static_assert(ht::check_scaled_range<ht::fp8_hybrid, 100000>());
#else
static_assert(ht::check_scaled_range<ht::fp8_hybrid, 1000000>());
#endif
