// SPDX-License-Identifier: MIT
// expect: halftone: what this rule gives is not a policy
#include <halftone/policy/recipe.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::recipe<ht::amp_bf16, ht::rule<"head", ht::full_fp32>>;
#else
using mine = ht::recipe<ht::amp_bf16, ht::rule<"head", float>>;
#endif
using found = ht::resolve<ht::at<mine, "norm">>;
