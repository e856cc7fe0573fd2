// SPDX-License-Identifier: MIT
/// \file
/// From here to set/end.hpp the compiler may use AMX tiles, and HALFTONE_SET is `amx`.
// Without a guard: it begins a region each time that it is included.

#include <halftone/exec/cpu/set/begin.hpp>

#undef HALFTONE_SET
#define HALFTONE_SET amx
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("amx-tile,amx-bf16"))), apply_to = function)
#else
#pragma GCC target("amx-tile,amx-bf16")
// g++ 12 takes the "undefined" vectors in its own AVX-512 intrinsics for a mistake (its bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
