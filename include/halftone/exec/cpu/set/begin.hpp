// SPDX-License-Identifier: MIT
/// \file
/// What set/portable.hpp and its neighbours begin with.
// Without a guard: once for each region.

#if defined(__CUDACC__)
// nvcc warns of every `#pragma GCC unroll`, and hands it on to the host's compiler, which heeds it.
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675
#endif
#if !defined(__clang__)
#pragma GCC push_options
#pragma GCC diagnostic push
#endif

#include <halftone/number/precise/begin.hpp>
