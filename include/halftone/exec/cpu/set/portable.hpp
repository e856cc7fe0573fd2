// SPDX-License-Identifier: MIT
/// \file
/// From here to set/end.hpp the compiler may use what every processor of its family has, and HALFTONE_SET is `portable`.
// Without a guard: it begins a region each time that it is included.

#include <halftone/exec/cpu/set/begin.hpp>

#undef HALFTONE_SET
#define HALFTONE_SET portable
#if defined(__clang__)
#pragma clang attribute push
#endif
