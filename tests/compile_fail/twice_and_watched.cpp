// SPDX-License-Identifier: MIT
// expect: halftone: tape: one tape is not both for second derivatives and watched
// expect: find the overflow of a step by the same loss without its penalty, on ht::tape tape{device, ht::watched}
#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>
#include <halftone/observe/watch/watched_tape.hpp>

namespace ht = halftone;

void tapes(ht::cpu& device) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::tape one{device, ht::double_backward};
    ht::tape two{device, ht::watched};
#else
    ht::tape one{device, ht::double_backward, ht::watched};
    ht::tape two{device, ht::watched, ht::double_backward};
#endif
}
