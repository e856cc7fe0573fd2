// SPDX-License-Identifier: MIT
// expect: halftone: gradients: name what the loss is to be differentiated by: tape.gradients(loss, model)
#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>

namespace ht = halftone;

auto gradients(ht::tape<ht::cpu, ht::double_backward_tape>& tape, const ht::variable<float, 0>& loss,
               const ht::variable<float, 2>& x) {
#if defined(HALFTONE_TEST_RIGHT)
    return tape.gradients(loss, x);
#else
    static_cast<void>(x);
    return tape.gradients(loss);
#endif
}
