// SPDX-License-Identifier: MIT
// expect: halftone: clip_grad_value: these gradients are still scaled by the loss scale; call scaler.unscale first
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "../optim/small_model.hpp"

namespace ht = halftone;

void step(ht::cpu& device, small::model<ht::amp_fp16>& model) {
    ht::grad_scaler scaler{device};
    ht::accumulator acc{model};
#if defined(HALFTONE_TEST_RIGHT)
    auto grads = scaler.unscale(acc.take());
#else
    auto grads = acc.take();
#endif
    ht::clip_grad_value(grads, 1.0f);
}
