// SPDX-License-Identifier: MIT
// expect: halftone: a path holds at most 63 characters; shorten the names of the layers on the way
#include <halftone/policy/recipe.hpp>

namespace ht = halftone;

using above = ht::at<ht::amp_bf16, "123456789.123456789.123456789">;
#if defined(HALFTONE_TEST_RIGHT)
using below = ht::at<above, "123456789.123456789.123456789.123">;
#else
using below = ht::at<above, "123456789.123456789.123456789.1234">;
#endif
using found = ht::resolve<below>;
