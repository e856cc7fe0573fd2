// SPDX-License-Identifier: MIT
// expect: halftone: the template argument given to this operation is not a number type: ht::softmax<float>(ctx, x); the policy is the context's, ht::autocast<policy>(ctx)
// expect: halftone: the template argument given to this operation is not its roles: the policy is the context's, ht::linear(ht::autocast<policy>(ctx), x, w, b), and a layer gives ht::layer_roles<...>
// expect: halftone: cast is given something other than a number type: ht::cast<float>(ctx, x); what computes by a policy is called in a region, ht::autocast<policy>(ctx)
// expect: halftone: autocast makes a region of a context, and this is not one: give it a tape (ht::tape tape{device}), an inference context (ht::inference eval{device}) or a region
#include <halftone/amp.hpp>

namespace ht = halftone;

void use(ht::cpu& device, ht::tape<ht::cpu>& tape, const ht::variable<float, 2>& x,
         const ht::nn::linear<ht::amp_bf16>& fc) {
#if defined(HALFTONE_TEST_RIGHT)
    const auto region = ht::autocast<ht::amp_bf16>(tape);
    ht::matmul(region, x, x);
    ht::linear(region, x, x);
    ht::linear(region, x, fc.weight, fc.bias);
    ht::linear(ht::autocast<ht::fp8_hybrid>(tape), x, fc.weight, fc.bias);
    ht::cast<ht::bfloat16>(tape, x);
    ht::inference eval{device};
    ht::autocast<ht::amp_bf16>(eval);
#else
    ht::matmul<ht::amp_bf16>(tape, x, x);
    ht::linear<ht::amp_bf16>(tape, x, x);
    ht::linear<ht::amp_bf16>(tape, x, fc.weight, fc.bias);
    ht::linear<ht::fp8_hybrid>(tape, x, fc.weight, fc.bias);
    ht::cast<ht::amp_bf16>(tape, x);
    ht::autocast<ht::amp_bf16>(device);
#endif
}
