// SPDX-License-Identifier: MIT
// expect: halftone: map: the last view is the output, and it is a view of constants
#include <halftone/kernel/map/cpu.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using output = ht::view<float, 1>;
#else
using output = ht::const_view<float, 1>;
#endif
void twice(ht::cpu& device, ht::const_view<float, 1> x, output y) {
    ht::map(device, [](auto a) { return 2 * a; }, x, y);
}
