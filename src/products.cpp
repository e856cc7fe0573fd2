// SPDX-License-Identifier: MIT
// Products and attention of halftone::compiled.
#define HALFTONE_COMPILED_PRODUCTS
#include <halftone/kernel.hpp>
