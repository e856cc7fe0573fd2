// SPDX-License-Identifier: MIT
// expect: halftone: linear: products of eight-bit operands are not differentiable twice, since their rounding is not; give the layers that a gradient penalty goes through another policy
#include <halftone/autodiff/double_backward/double_backward.hpp>
#include <halftone/kernel/column_sum/cpu.hpp>
#include <halftone/kernel/map/cpu.hpp>
#include <halftone/kernel/matmul/cpu.hpp>
#include <halftone/kernel/quantize/cpu.hpp>
#include <halftone/nn/linear.hpp>

namespace ht = halftone;

void forward(ht::cpu& device, ht::nn::linear<ht::at<ht::fp8_hybrid, "fc">>& fc,
             const ht::const_view<ht::bfloat16, 2>& x) {
#if defined(HALFTONE_TEST_RIGHT)
    ht::tape tape{device};
#else
    ht::tape tape{device, ht::double_backward};
#endif
    static_cast<void>(fc(tape, tape.constant(x)));
}
