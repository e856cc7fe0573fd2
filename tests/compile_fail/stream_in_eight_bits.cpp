// SPDX-License-Identifier: MIT
// expect: halftone: the residual stream of this policy (role `stream`) has a type in which no layer adds to it
// expect: take ht::with_stream<P, float>
#include <halftone/policy/check.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using stream = float;
#else
using stream = ht::float8_e4m3;
#endif
static_assert(ht::check_policy<ht::with_stream<ht::fp8_hybrid, stream>>());
