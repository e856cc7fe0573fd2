// SPDX-License-Identifier: MIT
// expect: write ht::clip_grad_norm(device, grads, max_norm)
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "../optim/small_model.hpp"

namespace ht = halftone;

void step(ht::cpu& device, small::model<ht::amp_bf16>& model) {
    ht::accumulator acc{model, ht::unscaled};
    auto grads = acc.take();
#if defined(HALFTONE_TEST_RIGHT)
    ht::clip_grad_norm(device, grads, 1.0f);
#else
    (void)device;
    ht::clip_grad_norm(grads, 1.0f);
#endif
}
