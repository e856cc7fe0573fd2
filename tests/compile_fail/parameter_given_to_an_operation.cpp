// SPDX-License-Identifier: MIT
// expect: halftone: this operation takes variables, and is given a parameter of a layer: ht::as_variable(ctx, layer.weight) is one, whose gradient goes where the parameter's does
#include <halftone/amp.hpp>
#include <halftone/autodiff/op/matmul.hpp>

namespace ht = halftone;

void use(ht::tape<ht::cpu>& tape, const ht::variable<float, 2>& x, const ht::nn::linear<ht::amp_bf16>& fc) {
    const auto region = ht::autocast<ht::amp_bf16>(tape);
    ht::linear(region, x, fc.weight, fc.bias);
#if defined(HALFTONE_TEST_RIGHT)
    ht::matmul(region, x, ht::as_variable(region, fc.weight));
#else
    ht::matmul(region, x, fc.weight);
#endif
}
