// SPDX-License-Identifier: MIT
// GPTs of halftone::compiled, with their training.
#define HALFTONE_COMPILED_MODELS
#include <halftone/amp.hpp>
