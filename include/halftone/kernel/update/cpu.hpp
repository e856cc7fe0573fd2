// SPDX-License-Identifier: MIT
/// \file
/// What the CPU's kernels of an optimizer's step share (cpu.inc): reading a gradient with its factors, storing a result
/// with the rounding of its type.
#pragma once

#include <type_traits>

#include <halftone/kernel/rows/rows.hpp>
#include <halftone/kernel/update/records.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/number/remainder.hpp>
#include <halftone/number/round_to.hpp>

#define HALFTONE_BODY <halftone/kernel/update/cpu.inc>
#include <halftone/exec/cpu/each_set.inc>

namespace halftone::inline HALFTONE_ABI::kernel {

/// Elements that one thread takes at a time: a multiple of a cache line in every type.
inline constexpr extent update_chunk = 16384;

}  // namespace halftone::inline HALFTONE_ABI::kernel
