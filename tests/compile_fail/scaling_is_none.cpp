// SPDX-License-Identifier: MIT
// expect: halftone: with_scaling: this is not a scaling; take ht::current_scaling<> or ht::delayed_scaling<>
#include <halftone/policy.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<1024>>;
#else
using mine = ht::with_scaling<ht::fp8_hybrid, ht::float8_e4m3>;
#endif
static_assert(ht::check_policy<mine>());
