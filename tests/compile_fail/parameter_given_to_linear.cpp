// SPDX-License-Identifier: MIT
// expect: halftone: this operation takes variables, and is given a parameter of a layer: ht::as_variable(ctx, layer.weight) is one, whose gradient goes where the parameter's does
#include <halftone/amp.hpp>
#include <halftone/autodiff/op/matmul.hpp>

namespace ht = halftone;

void use(ht::tape<ht::cpu>& tape, const ht::variable<float, 2>& w, const ht::nn::linear<ht::amp_bf16>& fc) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::linear(tape, ht::as_variable(tape, fc.weight), w, fc.bias);
#else
    ht::linear(tape, fc.weight, w, fc.bias);
#endif
}
