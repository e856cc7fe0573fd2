// SPDX-License-Identifier: MIT
/// \file
/// Rung 1, number types for any C++20 program: float16, bfloat16, float8_e4m3, float8_e5m2, tfloat32, sums of bfloat16
/// (split), blocks of few bits (q8_0, nf4), with their traits, rounding modes, saturation and classification, and random bits for stochastic rounding.
/// It includes nothing else of the library and adds a few hundredths of a second to a file's compile time. Normally
/// distributed random numbers need <halftone/number/normal.hpp>.
///
///     #include <halftone/number.hpp>
///     namespace ht = halftone;
///     static_assert(ht::bfloat16(1.0f / 3).bits() == 0x3eab);
#pragma once

#include <halftone/number/bfloat16.hpp>
#include <halftone/number/block_format.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/float8.hpp>
#include <halftone/number/nf4.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/number/remainder.hpp>
#include <halftone/number/round_to.hpp>
#include <halftone/number/rounding.hpp>
#include <halftone/number/saturate.hpp>
#include <halftone/number/split.hpp>
#include <halftone/number/tfloat32.hpp>
#include <halftone/number/traits.hpp>
