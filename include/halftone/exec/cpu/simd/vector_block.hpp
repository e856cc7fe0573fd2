// SPDX-License-Identifier: MIT
/// \file
/// Blocks of several vectors, for each instruction set.
#pragma once

#include <halftone/exec/cpu/simd/vectors.hpp>

#define HALFTONE_BODY <halftone/exec/cpu/simd/vector_block.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
