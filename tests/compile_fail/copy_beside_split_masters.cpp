// SPDX-License-Identifier: MIT
// expect: halftone: the weights of this layer are in blocks (role `copy`), which no split master has
#include <halftone/nn/linear.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using policy = ht::amp_bf16;
#else
using policy = ht::with_split_master<ht::amp_bf16>;
#endif
using layer = ht::nn::linear<ht::with_copy<policy, ht::q8_0>>;
static_assert(sizeof(layer) != 0);
