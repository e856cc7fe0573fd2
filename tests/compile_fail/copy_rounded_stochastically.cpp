// SPDX-License-Identifier: MIT
// expect: halftone: with_copy_rounding: copies are made again from the same masters, and have to come out the same
#include <halftone/policy/presets.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::with_copy_rounding<ht::amp_bf16, ht::rounding::nearest_away>;
#else
using mine = ht::with_copy_rounding<ht::amp_bf16, ht::rounding::stochastic>;
#endif
mine::param number = 0;
