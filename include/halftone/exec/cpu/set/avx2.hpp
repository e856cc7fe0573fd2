// SPDX-License-Identifier: MIT
/// \file
/// From here to set/end.hpp the compiler may use AVX2, and HALFTONE_SET is `avx2`.
// Without a guard: it begins a region each time that it is included.

#include <halftone/exec/cpu/set/begin.hpp>

#undef HALFTONE_SET
#define HALFTONE_SET avx2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
// g++ 12 takes the "undefined" vectors in its own AVX-512 intrinsics for a mistake (its bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
