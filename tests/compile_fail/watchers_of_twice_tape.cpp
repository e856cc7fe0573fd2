// SPDX-License-Identifier: MIT
// expect: halftone: this looks at what a tape shows, and one for second derivatives shows nothing, nor can it be watched as well: look at the same loss without its penalty, on ht::tape tape{device, ht::watched}
// never: a plain tape shows nothing
#include <halftone/autodiff/twice.hpp>
#include <halftone/kernel/tally/cpu.hpp>
#include <halftone/observe/numerics.hpp>
#include <halftone/observe/overflow.hpp>

namespace ht = halftone;

void look(ht::cpu& device) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::tape tape{device, ht::watched};
#else
    ht::tape tape{device, ht::twice};
#endif
    const ht::overflow_finder where{device, tape};
    const ht::numerics_collector what{device, tape};
}
