// SPDX-License-Identifier: MIT
// Kernels by elements: optimizer steps, gradient norms, conversions, of halftone::compiled.
#define HALFTONE_COMPILED_ELEMENTS
#include <halftone/kernel.hpp>
