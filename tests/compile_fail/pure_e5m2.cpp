// SPDX-License-Identifier: MIT
// expect: halftone: this policy reads activations and weights as ht::float8_e5m2 (role `compute`), whose three significant bits are too few for them: take ht::float8_e4m3 there
#include <halftone/policy.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::fp8_hybrid;
#else
using mine = ht::with_compute<ht::fp8_hybrid, ht::float8_e5m2>;
#endif
static_assert(ht::check_policy<mine>());
