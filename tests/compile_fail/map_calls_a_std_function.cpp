// SPDX-License-Identifier: MIT
// expect-first: halftone: map: while a function is traced its arguments are symbols
// expect: halftone: map: while a function is traced its arguments are symbols for all elements, and not numbers: call halftone's functions (ht::exp, ht::tanh, ...), not std's or C's, or give ht::opaque(functor)
#include <cmath>

#include <halftone/kernel/map/cpu.hpp>

namespace ht = halftone;

void activate(ht::cpu& device, ht::const_view<float, 1> x, ht::view<float, 1> y) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::map(device, [](auto a) { return ht::tanh(a + 1); }, x, y);
#else
    ht::map(device, [](auto a) { return std::tanh(a + 1); }, x, y);
#endif
}
