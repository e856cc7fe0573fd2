// SPDX-License-Identifier: MIT
#define TEST_PRODUCTS
#include <support/compiled/kernels.hpp>
