// SPDX-License-Identifier: MIT
// expect: halftone: linear: products of eight bits have no second derivatives; let the layer compute in more
// expect-nvcc: halftone: linear: products of eight-bit operands are not differentiable twice
#include <halftone/amp.hpp>
#include <halftone/autodiff/twice.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using policy = ht::amp_bf16;
#else
using policy = ht::fp8_hybrid;
#endif

auto apply(ht::tape<ht::cpu, ht::twice_tape>& tape, const ht::nn::linear<policy>& layer,
           const ht::variable<float, 2>& x) {
    return layer(tape, x);
}
