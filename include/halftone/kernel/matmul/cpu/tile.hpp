// SPDX-License-Identifier: MIT
/// \file
/// Products on AMX tiles.
#pragma once

#include <halftone/exec/cpu/simd/tile_amx.hpp>
#include <halftone/exec/cpu/simd/tile_software.hpp>
#include <halftone/kernel/matmul/cpu/lookahead.hpp>
#include <halftone/kernel/matmul/cpu/operands.hpp>

#if defined(__x86_64__)
// The body in the region, not in the order of the alphabet.
// clang-format off
#include <halftone/exec/cpu/set/amx.hpp>
#include <halftone/kernel/matmul/cpu/tile.simd.hpp>
#include <halftone/exec/cpu/set/end.hpp>
// clang-format on
#endif
