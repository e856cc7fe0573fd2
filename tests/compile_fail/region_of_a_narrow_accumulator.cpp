// SPDX-License-Identifier: MIT
// expect: halftone: the accumulator of this policy (role `accum`) is narrower than the operands it sums
#include <halftone/amp.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using mine = ht::with_accum<ht::amp_bf16, float>;
#else
using mine = ht::with_accum<ht::full_fp32, ht::float16>;
#endif
auto hidden(ht::tape<ht::cpu>& tape, const ht::variable<float, 2>& x) { return ht::tanh(ht::autocast<mine>(tape), x); }
