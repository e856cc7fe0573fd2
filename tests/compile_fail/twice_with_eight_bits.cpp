// SPDX-License-Identifier: MIT
// expect: halftone: linear: products of eight-bit operands are not differentiable twice, since their rounding is not; give the layers that a gradient penalty goes through another policy, ht::amp_bf16 for one, or record on ht::tape tape{device}
// never: halftone: tape: this operation cannot be differentiated twice
#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using policy = ht::amp_bf16;
#else
using policy = ht::fp8_hybrid;
#endif

auto apply(ht::tape<ht::cpu, ht::double_backward_tape>& tape, const ht::nn::mlp<policy>& layer,
           const ht::variable<ht::bfloat16, 2>& x) {
    return layer(tape, x, x);
}
