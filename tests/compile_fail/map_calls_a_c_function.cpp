// SPDX-License-Identifier: MIT
// expect-first: halftone: map: while a function is traced its arguments are symbols
// expect: halftone: map: while a function is traced its arguments are symbols
#include <math.h>

#include <halftone/kernel/map/cpu.hpp>

namespace ht = halftone;

void activate(ht::cpu& device, ht::const_view<float, 1> x, ht::view<float, 1> y) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::map(device, [](auto a) { return ht::exp(a) + ht::pow(a, 2); }, x, y);
#else
    ht::map(device, [](auto a) { return expf(a) + ht::pow(a, 2); }, x, y);
#endif
}
