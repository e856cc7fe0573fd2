// SPDX-License-Identifier: MIT
// expect: halftone: map: an input has the output's rank, or rank 0 (one value), or rank 1 if the outputs have rank 2 or more
#include <halftone/kernel.hpp>

namespace ht = halftone;

void sum(ht::cpu& device, ht::view<float, 3> x, ht::view<float, 2> b, ht::view<float, 3> y) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::map(
        device, [](auto p, auto q) { return p + q; }, x, ht::expand(b, y.shape()), y);
#else
    ht::map(
        device, [](auto p, auto q) { return p + q; }, x, b, y);
#endif
}
