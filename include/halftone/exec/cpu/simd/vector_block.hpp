// SPDX-License-Identifier: MIT
/// \file
/// Several vectors at once, on each instruction set.
#pragma once

#include <halftone/exec/cpu/simd/vectors.hpp>

#define HALFTONE_BODY <halftone/exec/cpu/simd/vector_block.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
