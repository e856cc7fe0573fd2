// SPDX-License-Identifier: MIT
// expect: halftone: this operation overflows in low precision; call its with_logits form
// expect: halftone: the template argument given to this operation is not a number type
// expect: halftone: as_variable: the store keeps this parameter in the types of its roles `param` and `compute`
// expect: halftone: matmul of variables takes matrices
// expect-nvcc: halftone: the template argument given to this operation is not a number type
// expect-nvcc: halftone: as_variable: the store keeps this parameter in the types of its roles `param` and `compute`
// expect-nvcc: halftone: matmul of variables takes matrices
#include <halftone/amp.hpp>
#include <halftone/autodiff/op/elementwise_loss.hpp>
#include <halftone/autodiff/op/matmul.hpp>

namespace ht = halftone;

void use(ht::tape<ht::cpu>& tape, const ht::variable<float, 1>& p, const ht::nn::linear<ht::amp_bf16>& layer) {
    const auto region = ht::autocast<ht::amp_bf16>(tape);
#if defined(HALFTONE_TEST_RIGHT)
    ht::binary_cross_entropy(ht::autocast<ht::full_fp32>(region), p, p);
    ht::softmax<ht::bfloat16>(tape, p);
    ht::as_variable<ht::bfloat16>(tape, layer.weight);
    ht::dot(region, p, p);
#else
    ht::binary_cross_entropy(region, p, p);
    ht::softmax<ht::amp_bf16>(tape, p);
    ht::as_variable<ht::float16>(tape, layer.weight);
    ht::matmul(region, p, p);
#endif
}
