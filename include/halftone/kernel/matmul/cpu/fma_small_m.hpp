// SPDX-License-Identifier: MIT
/// \file
/// Products of few rows by multiply-add, on each instruction set.
#pragma once

#include <halftone/kernel/matmul/cpu/fma_packing.hpp>
#include <halftone/kernel/matmul/cpu/operands.hpp>

#define HALFTONE_BODY <halftone/kernel/matmul/cpu/fma_small_m.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
