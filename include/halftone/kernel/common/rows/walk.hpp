// SPDX-License-Identifier: MIT
/// \file
/// Iterating over a row in vectors and summing it, for each instruction set.
#pragma once

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/exec/cpu/stream.hpp>
#include <halftone/kernel/write_mode.hpp>
#include <halftone/tensor/shape.hpp>

#define HALFTONE_BODY <halftone/kernel/common/rows/walk.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
