// SPDX-License-Identifier: MIT
// expect: halftone: a sum of so many terms in this policy's accumulator (role `accum`) loses some
// expect: terms<4096>
// expect: significand_bits<11>
// expect: lost_terms<2048>
// expect-nvcc: halftone: a sum of so many terms in this policy's accumulator (role `accum`) loses some
// expect-nvcc: K=4096
// expect-nvcc: significand_bits<11>
// expect-nvcc: Lost=2048
#include <halftone/number/float16.hpp>
#include <halftone/policy/lint.hpp>
#include <halftone/policy/presets.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
static_assert(ht::check_sum_length<ht::amp_fp16, 4096>());
#else
static_assert(ht::check_sum_length<ht::with_accum<ht::amp_fp16, ht::float16>, 4096>());
#endif
