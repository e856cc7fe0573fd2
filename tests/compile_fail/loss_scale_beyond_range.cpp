// SPDX-License-Identifier: MIT
// expect: halftone: the gradient of a mean over so many terms begins at up to loss_scale<...> / terms<...>
// expect: loss_scale<16777216>
// expect: largest_number<65504>
#include <halftone/observe/lint/policy_lint.hpp>
#include <halftone/policy/presets.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
static_assert(ht::check_loss_scale<ht::amp_fp16, 16777216, 1024>());
#else
static_assert(ht::check_loss_scale<ht::amp_fp16, 16777216, 128>());
#endif
