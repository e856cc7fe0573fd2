// SPDX-License-Identifier: MIT
// expect: halftone: this looks at what a tape shows, and one for second derivatives shows nothing, nor can it be watched as well: look at the same loss without its penalty, on ht::tape tape{device, ht::watched}
// never: a plain tape shows nothing
#include <halftone/autodiff/double_backward/double_backward.hpp>
#include <halftone/kernel/count_nonfinite/cpu.hpp>
#include <halftone/observe/numerics/numerics.hpp>
#include <halftone/observe/overflow/overflow.hpp>

namespace ht = halftone;

void look(ht::cpu& device) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::tape tape{device, ht::watched};
#else
    ht::tape tape{device, ht::double_backward};
#endif
    const ht::overflow_finder where{device, tape};
    const ht::numerics_collector what{device, tape};
}
