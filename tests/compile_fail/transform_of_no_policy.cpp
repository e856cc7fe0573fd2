// SPDX-License-Identifier: MIT
// expect: halftone: this policy lacks the role `param`
#include <halftone/policy/presets.hpp>

namespace ht = halftone;

struct mine {};
#if defined(HALFTONE_TEST_RIGHT)
using wide = ht::with_output<ht::amp_fp16, float>;
#else
using wide = ht::with_output<mine, float>;
#endif
wide::output number = 0;
