// SPDX-License-Identifier: MIT
// expect: halftone: unscale: these gradients are not scaled
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "../optim/small_model.hpp"

namespace ht = halftone;

void step(ht::cpu& device, small::model<ht::amp_fp16>& model) {
    ht::grad_scaler scaler{device};
    ht::accumulator acc{model};
    auto grads = scaler.unscale(acc.take());
#if defined(HALFTONE_TEST_RIGHT)
    ht::clip_grad_norm(grads, 1.0f);
#else
    scaler.unscale(std::move(grads));
#endif
}
