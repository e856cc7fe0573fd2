// SPDX-License-Identifier: MIT
// The bodies of functions that are no templates, which sources with halftone::compiled do not read (config.hpp).
#define HALFTONE_COMPILED_FUNCTIONS
#include <halftone/halftone.hpp>
