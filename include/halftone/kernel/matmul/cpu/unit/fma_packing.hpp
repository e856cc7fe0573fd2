// SPDX-License-Identifier: MIT
/// \file
/// Packing into floats, for products by multiply-add, on each instruction set.
#pragma once

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/policy/promotion.hpp>
#include <halftone/tensor/shape.hpp>

#define HALFTONE_BODY <halftone/kernel/matmul/cpu/unit/fma_packing.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
