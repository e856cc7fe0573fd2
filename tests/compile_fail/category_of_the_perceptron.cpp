// SPDX-License-Identifier: MIT
// expect: halftone: operation_category<ht::op::mlp> is specialised, and would have no effect: a perceptron is two linear layers and computes by their category; specialise operation_category<ht::op::linear>
#include <halftone/amp.hpp>
#include <halftone/nn/mlp.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using operation = ht::op::linear;
#else
using operation = ht::op::mlp;
#endif
template <>
struct halftone::operation_category<operation> {
    static constexpr ht::category value = ht::category::fp32;
};

void use(ht::tape<ht::cpu>& tape, const ht::nn::mlp<ht::amp_bf16>& mlp, const ht::variable<float, 2>& x) {
    mlp(tape, x, x);
}
