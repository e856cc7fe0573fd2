// SPDX-License-Identifier: MIT
// expect: halftone: this policy splits its masters (ht::with_split_master) and has another `param` than float or another `compute`
#include <halftone/policy/check.hpp>

namespace ht = halftone;

struct mine : ht::with_split_master<ht::amp_bf16> {
#if !defined(HALFTONE_TEST_RIGHT)
    using compute = float;
#endif
};
static_assert(ht::check_policy<mine>());
