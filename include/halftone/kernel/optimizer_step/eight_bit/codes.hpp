// SPDX-License-Identifier: MIT
/// \file
/// Conversions between codes of the dynamic map and vectors of floats, for each instruction set (codes.simd.hpp).
#pragma once

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/dynamic_codec.hpp>

#define HALFTONE_BODY <halftone/kernel/optimizer_step/eight_bit/codes.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
