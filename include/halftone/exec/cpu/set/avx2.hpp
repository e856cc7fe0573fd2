// SPDX-License-Identifier: MIT
/// \file
/// Begins a region, up to set/end.hpp, in which the compiler may use AVX2 and HALFTONE_SET is `avx2`.
// No include guard: every inclusion begins a region.

#include <halftone/exec/cpu/set/begin.hpp>

#undef HALFTONE_SET
#define HALFTONE_SET avx2
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
// g++ 12 warns of the "undefined" vectors in its own AVX-512 intrinsics (its bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
