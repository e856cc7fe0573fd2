// SPDX-License-Identifier: MIT
/// \file
/// The vectors of all instruction sets, with their conversions of one-byte numbers.
#pragma once

#include <utility>

#include <halftone/exec/cpu/body_names.hpp>
#include <halftone/exec/cpu/simd/avx2.hpp>
#include <halftone/exec/cpu/simd/avx512.hpp>
#include <halftone/exec/cpu/simd/portable.hpp>
#include <halftone/number/code_table.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// 0, 1, 2, ... for as many lanes as the widest vector has.
inline constexpr float lane_numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

#define HALFTONE_BODY <halftone/exec/cpu/simd/float8.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

#define HALFTONE_BODY <halftone/exec/cpu/simd/own_number.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
