// SPDX-License-Identifier: MIT
// expect: halftone: this type has no traits and is thus no number type
#include <halftone/policy/recipe.hpp>

namespace ht = halftone;

struct mine : ht::amp_bf16 {
#if defined(HALFTONE_TEST_RIGHT)
    using compute = float;
#else
    using compute = int;
#endif
};
using found = ht::resolve<ht::at<mine, "fc">>::output;
