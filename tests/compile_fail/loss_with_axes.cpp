// SPDX-License-Identifier: MIT
// expect: halftone: a loss is one number, and this variable has axes: differentiate its sum or its mean, ht::sum(tape, y) or ht::mean(tape, y), or a loss of it
// never: no matching function
#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>

namespace ht = halftone;

template <class Accumulator>
void differentiate(ht::tape<ht::cpu>& tape, ht::tape<ht::cpu, ht::double_backward_tape>& twice, ht::grad_scaler<ht::cpu>& scaler,
                   Accumulator& acc, const ht::variable<float, 2>& x) {
#if defined(HALFTONE_TEST_RIGHT)
    const auto y = ht::sum(tape, x), z = ht::mean(twice, x);
#else
    const auto &y = x, &z = x;
#endif
    tape.backward(y);
    tape.backward(scaler.scale(y), acc);
    static_cast<void>(twice.gradients(z, x));
    static_cast<void>(scaler.unscale(twice.gradients(scaler.scale(z), x)));
}
using model = ht::nn::gpt<ht::amp_fp16>;
template void differentiate(ht::tape<ht::cpu>&, ht::tape<ht::cpu, ht::double_backward_tape>&, ht::grad_scaler<ht::cpu>&,
                            ht::accumulator<ht::through_scaler, ht::types<model>>&, const ht::variable<float, 2>&);
