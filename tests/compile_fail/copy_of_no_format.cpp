// SPDX-License-Identifier: MIT
// expect: halftone: with_copy: the format of copies is no block format
#include <halftone/policy.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using format = ht::q8_0;
#else
using format = ht::float8_e4m3;
#endif
using copied = ht::with_copy<ht::pure_bf16, format>;
static_assert(sizeof(copied) != 0);
