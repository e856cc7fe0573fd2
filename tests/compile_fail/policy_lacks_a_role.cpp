// SPDX-License-Identifier: MIT
// expect: halftone: this policy lacks the role `reduce`
#include <halftone/policy/check.hpp>

namespace ht = halftone;

struct mine {
    using param = float;
    using compute = ht::bfloat16;
    using output = ht::bfloat16;
    using accum = float;
    using grad = ht::bfloat16;
    using accumulate = float;
#if defined(HALFTONE_TEST_RIGHT)
    using reduce = float;
#endif
    using state = float;
    static constexpr ht::rounding param_rounding = ht::rounding::nearest_even;
};
static_assert(ht::check_policy<mine>());
