// SPDX-License-Identifier: MIT
// Kernels by rows: norms, softmax, losses, embeddings, of halftone::compiled.
#define HALFTONE_COMPILED_ROWS
#include <halftone/kernel.hpp>
