// SPDX-License-Identifier: MIT
// expect: halftone: the weights of this layer are in blocks (role `copy`), from which no 8-bit operands are made
#include <halftone/nn/linear.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using policy = ht::pure_bf16;
#else
using policy = ht::fp8_hybrid;
#endif
using layer = ht::nn::linear<ht::with_copy<policy, ht::q8_0>>;
static_assert(sizeof(layer) != 0);
