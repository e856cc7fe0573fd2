// SPDX-License-Identifier: MIT
// expect: halftone: after its default a recipe takes rules only
#include <halftone/policy/recipe.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::recipe<ht::amp_bf16, ht::rule<"*", ht::full_fp32>>;
#else
using mine = ht::recipe<ht::amp_bf16, ht::full_fp32>;
#endif
using found = ht::resolve<mine>;
