// SPDX-License-Identifier: MIT
// expect: halftone: these gradients are still multiplied by the loss scale, and so would be what is computed of them: unscale them first
#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>

namespace ht = halftone;

auto penalty(ht::tape<ht::cpu, ht::double_backward_tape>& tape, ht::grad_scaler<ht::cpu>& scaler,
             const ht::variable<float, 0>& loss, const ht::variable<float, 2>& x) {
#if defined(HALFTONE_TEST_RIGHT)
    return ht::norm(tape, scaler.unscale(tape.gradients(scaler.scale(loss), x)));
#else
    return ht::norm(tape, tape.gradients(scaler.scale(loss), x));
#endif
}
