// SPDX-License-Identifier: MIT
// expect: halftone: tape: this one gives gradients to an accumulator and to leaves, by backward(loss, acc) and gradient(x); for gradients that are variables, to be differentiated again, write ht::tape tape{device, ht::double_backward}
#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>

namespace ht = halftone;

void differentiate(ht::cpu& device, const ht::const_view<float, 2>& values) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::tape tape{device, ht::double_backward};
#else
    ht::tape tape{device};
#endif
    const auto x = tape.leaf(values);
    static_cast<void>(tape.gradients(ht::sum(tape, x), x));
}
