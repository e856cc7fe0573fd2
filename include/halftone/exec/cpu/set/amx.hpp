// SPDX-License-Identifier: MIT
/// \file
/// Begins a region, up to set/end.hpp, in which the compiler may use AMX tiles and HALFTONE_SET is `amx`.
// No include guard: every inclusion begins a region.

#include <halftone/exec/cpu/set/begin.hpp>

#undef HALFTONE_SET
#define HALFTONE_SET amx
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("amx-tile,amx-bf16"))), apply_to = function)
#else
#pragma GCC target("amx-tile,amx-bf16")
// g++ 12 warns of the "undefined" vectors in its own AVX-512 intrinsics (its bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
