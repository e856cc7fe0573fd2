// SPDX-License-Identifier: MIT
// expect: halftone: this policy keeps or sums numbers in eight bits, where updates and sums get lost
#include <halftone/autodiff/engine/tape.hpp>

namespace ht = halftone;

// Stochastic rounding keeps updates on average, but not in three bits of fraction without a scale.
template <class P>
using mine = ht::with_param_rounding<P, ht::rounding::stochastic>;

template <class Tape>
void in_region(Tape& tape) {
#if defined(HALFTONE_TEST_RIGHT)
    static_cast<void>(ht::autocast<mine<ht::pure_bf16>>(tape));
#else
    static_cast<void>(ht::autocast<mine<ht::with_param<ht::fp8_hybrid, ht::float8_e4m3>>>(tape));
#endif
}
struct device {};
template void in_region(ht::tape<device>&);
