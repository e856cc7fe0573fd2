// SPDX-License-Identifier: MIT
/// \file
/// Products by multiply-add, on each instruction set: of packed panels (fma.simd.hpp), and of few rows by b in place
/// (fma_small_m.simd.hpp).
#pragma once

#include <halftone/kernel/matmul/cpu/unit/fma_packing.hpp>
#include <halftone/kernel/matmul/cpu/unit/operands.hpp>
#include <halftone/kernel/matmul/cpu/unit/prefetch.hpp>

#define HALFTONE_BODY <halftone/kernel/matmul/cpu/unit/fma.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

#define HALFTONE_BODY <halftone/kernel/matmul/cpu/unit/fma_small_m.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
