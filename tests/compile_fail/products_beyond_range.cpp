// SPDX-License-Identifier: MIT
// expect: halftone: products of so many terms of these sizes reach a number that this policy's results (role `output`) cannot
// expect: reached_number<131072>
// expect: largest_number<65504>
#include <halftone/observe/lint/policy_lint.hpp>
#include <halftone/policy/presets.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
static_assert(ht::check_product_range<ht::amp_bf16, 4096, 8, 4>());
#else
static_assert(ht::check_product_range<ht::amp_fp16, 4096, 8, 4>());
#endif
