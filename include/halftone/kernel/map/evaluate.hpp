// SPDX-License-Identifier: MIT
/// \file
/// Expressions on vectors: `evaluate(expression, arguments)` in the namespace of each instruction set, for CPU kernels'
/// bodies; arguments[i] is the vector of input i.
///
///     const f32 x[] = {load(a + j), load(b + j)};                // in a body, see exec/cpu/each_set.hpp
///     store(out + j, evaluate(e, x));
///
/// Numeric contract: operators round once; a product and a sum may be fused. Functions have the errors that
/// exec/cpu/simd/math.simd.hpp states; sinh, cosh, tan, pow and atan2 are <cmath>'s, within 4 ulp according to glibc's
/// manual.
#pragma once

#include <utility>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/map/expression/expression.hpp>
#include <halftone/kernel/map/expression/scalar.hpp>

#define HALFTONE_BODY <halftone/kernel/map/evaluate.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>
