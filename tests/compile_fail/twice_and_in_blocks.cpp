// SPDX-License-Identifier: MIT
// expect: halftone: tape: weights in blocks (role `copy`) have no second derivatives
#include <halftone/amp.hpp>
#include <halftone/autodiff/double_backward/double_backward.hpp>
#include <halftone/nn/linear.hpp>

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using policy = ht::amp_bf16;
#else
using policy = ht::with_copy<ht::amp_bf16, ht::q8_0>;
#endif
void twice(ht::cpu& device, ht::nn::linear<ht::at<policy, "fc">>& fc, const ht::const_view<float, 2>& x,
           const ht::const_view<float, 2>& to) {
    ht::tape tape{device, ht::double_backward};
    const auto in = tape.leaf(x);
    const auto loss = ht::mean_squared_error(tape, fc(tape, in), to);
    static_cast<void>(tape.gradients(loss, in));
}
