// SPDX-License-Identifier: MIT
// expect: halftone: the gradients of so many micro-batches add up in buffers (role `accumulate`) that lose some
// expect: terms<512>
// expect: lost_terms<256>
// expect-nvcc: halftone: the gradients of so many micro-batches add up in buffers (role `accumulate`) that lose some
// expect-nvcc: K=512
// expect-nvcc: Lost=256
#include <halftone/number/bfloat16.hpp>
#include <halftone/observe/lint/policy_lint.hpp>
#include <halftone/policy/presets.hpp>

namespace ht = halftone;

using narrow = ht::with_accumulate<ht::amp_bf16, ht::bfloat16>;
#if defined(HALFTONE_TEST_RIGHT)
static_assert(ht::check_micro_batches<narrow, 256>());
#else
static_assert(ht::check_micro_batches<narrow, 512>());
#endif
