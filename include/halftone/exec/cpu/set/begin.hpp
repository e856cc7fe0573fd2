// SPDX-License-Identifier: MIT
/// \file
/// The common beginning of set/portable.hpp, set/avx2.hpp and their neighbours.
// No include guard: included once for each region.

#if defined(__CUDACC__)
// nvcc warns of every `#pragma GCC unroll`, but passes it on to the host compiler, which obeys it.
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675
#endif
#if !defined(__clang__)
#pragma GCC push_options
#pragma GCC diagnostic push
#endif

#include <halftone/number/precise/begin.hpp>
