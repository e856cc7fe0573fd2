// SPDX-License-Identifier: MIT
#define TEST_ELEMENTS
#include <support/compiled/kernels.hpp>
