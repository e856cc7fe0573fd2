// SPDX-License-Identifier: MIT
// expect: halftone: this operation overflows in low precision
#include <halftone/policy/operations.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using loss = ht::free_output<ht::full_fp32, ht::op::binary_cross_entropy, float, float>;
#else
using loss = ht::free_output<ht::amp_fp16, ht::op::binary_cross_entropy, float, float>;
#endif
