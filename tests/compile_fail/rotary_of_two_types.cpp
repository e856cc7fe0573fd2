// SPDX-License-Identifier: MIT
// expect: halftone: rotary: x and y have one element type
#include <halftone/kernel/rotary/cpu.hpp>

namespace ht = halftone;

void turn(ht::cpu& device, const ht::view<ht::bfloat16, 4>& x, const ht::view<float, 4>& y, const ht::view<float, 2>& table) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::rotary(device, y, table, y);
    static_cast<void>(x);
#else
    ht::rotary(device, x, table, y);
#endif
}
