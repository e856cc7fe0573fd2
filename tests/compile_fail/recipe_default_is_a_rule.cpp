// SPDX-License-Identifier: MIT
// expect: halftone: the default of this recipe is not a policy
#include <halftone/policy/recipe.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::recipe<ht::amp_bf16, ht::rule<"*.norm", ht::full_fp32>>;
#else
using mine = ht::recipe<ht::rule<"*.norm", ht::full_fp32>>;
#endif
using found = ht::resolve<ht::at<mine, "norm">>;
