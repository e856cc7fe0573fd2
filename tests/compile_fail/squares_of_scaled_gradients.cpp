// SPDX-License-Identifier: MIT
// expect: halftone: these gradients are still multiplied by the loss scale, and so would be what is computed of them: unscale them first
#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>

namespace ht = halftone;

auto penalty(ht::tape<ht::cpu, ht::double_backward_tape>& tape, ht::grad_scaler<ht::cpu>& scaler,
             const ht::variable<float, 0>& loss, const ht::variable<float, 1>& x) {
    auto grads = tape.gradients(scaler.scale(loss), x);
#if defined(HALFTONE_TEST_RIGHT)
    return ht::sum_of_squares(tape, scaler.unscale(std::move(grads)));
#else
    return ht::sum_of_squares(tape, grads);
#endif
}
