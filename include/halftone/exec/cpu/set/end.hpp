// SPDX-License-Identifier: MIT
/// \file
/// Ends the region that set/avx2.hpp or one of its neighbours began.
// No include guard: included once for each region.

#include <halftone/number/precise/end.hpp>

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC diagnostic pop
#pragma GCC pop_options
#endif
#if defined(__CUDACC__)
#pragma nv_diagnostic pop
#endif

#undef HALFTONE_SET
#define HALFTONE_SET portable
