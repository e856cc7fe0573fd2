// SPDX-License-Identifier: MIT
// expect: this looks at what a tape shows, and a plain tape shows nothing: write ht::tape tape{device, ht::watched};
#include <halftone/kernel/count_nonfinite/cpu.hpp>
#include <halftone/observe/overflow/overflow.hpp>

namespace ht = halftone;

void look(ht::cpu& device) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::tape tape{device, ht::watched};
#else
    ht::tape tape{device};
#endif
    const ht::overflow_finder look{device, tape};
}
