// SPDX-License-Identifier: MIT
/// \file
/// Products by multiply-add, on each instruction set.
#pragma once

#include <halftone/kernel/matmul/cpu/fma_packing.hpp>
#include <halftone/kernel/matmul/cpu/lookahead.hpp>
#include <halftone/kernel/matmul/cpu/operands.hpp>

#define HALFTONE_BODY <halftone/kernel/matmul/cpu/fma.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
