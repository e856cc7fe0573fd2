// SPDX-License-Identifier: MIT
/// \file
/// Begins a region, up to set/end.hpp, for the instructions that every processor of the family has; HALFTONE_SET is
/// `portable`.
// No include guard: every inclusion begins a region.

#include <halftone/exec/cpu/set/begin.hpp>

#undef HALFTONE_SET
#define HALFTONE_SET portable
#if defined(__clang__)
#pragma clang attribute push
#endif
