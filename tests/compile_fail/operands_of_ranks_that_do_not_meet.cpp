// SPDX-License-Identifier: MIT
// expect: halftone: map: an input has the output's rank, or rank 0 (one value), or rank 1 beside outputs of rank 2
#include <halftone/amp.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using bias = ht::variable<float, 1>;
#else
using bias = ht::variable<float, 2>;
#endif
auto sum(ht::tape<ht::cpu>& tape, const ht::variable<float, 3>& x, const bias& b) { return ht::add(tape, x, b); }
