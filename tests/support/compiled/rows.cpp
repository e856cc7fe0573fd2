// SPDX-License-Identifier: MIT
#define TEST_ROWS
#include <support/compiled/kernels.hpp>
