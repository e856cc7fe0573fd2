// SPDX-License-Identifier: MIT
/// \file
/// Begins a region, up to set/end.hpp, in which the compiler may use AVX-512 and HALFTONE_SET is `avx512`.
// No include guard: every inclusion begins a region.

#include <halftone/exec/cpu/set/begin.hpp>

#undef HALFTONE_SET
#define HALFTONE_SET avx512
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
// g++ 12 warns of the "undefined" vectors in its own AVX-512 intrinsics (its bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
