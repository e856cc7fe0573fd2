// SPDX-License-Identifier: MIT
// expect: halftone: a sum of so many terms in the type that kernels sum in (float, or the role `accum` where it is wider) loses some
// expect: terms<33554432>
// expect: significand_bits<24>
// expect: lost_terms<16777216>
// expect-nvcc: halftone: a sum of so many terms in the type that kernels sum in (float, or the role `accum` where it is wider) loses some
// expect-nvcc: K=33554432
// expect-nvcc: significand_bits<24>
// expect-nvcc: Lost=16777216
#include <halftone/number/float16.hpp>
#include <halftone/observe/lint/policy_lint.hpp>
#include <halftone/policy/presets.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
static_assert(ht::check_sum_length<ht::with_accum<ht::amp_fp16, ht::float16>, 16777216>());
#else
static_assert(ht::check_sum_length<ht::amp_fp16, 33554432>());
#endif
