// SPDX-License-Identifier: MIT
// expect-first: halftone: map: a symbolic condition has no truth value
// expect: halftone: map: a symbolic condition has no truth value; choose with ht::where(condition, a, b)
#include <halftone/kernel/map/cpu.hpp>

namespace ht = halftone;

void rectify(ht::cpu& device, ht::const_view<float, 1> x, ht::view<float, 1> y) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::map(device, [](auto a) { return ht::where(a > 0, a, 0); }, x, y);
#else
    ht::map(
        device,
        [](auto a) {
            if (a > 0) return 1 * a;
            return 0.5f * a;
        },
        x, y);
#endif
}
