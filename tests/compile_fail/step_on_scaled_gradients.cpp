// SPDX-License-Identifier: MIT
// expect: halftone: step: these gradients are still scaled by the loss scale; call scaler.unscale first
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "../optim/small_model.hpp"

namespace ht = halftone;

void step(ht::cpu& device, small::model<ht::amp_fp16>& model) {
    ht::adamw optimizer{device, model};
    ht::grad_scaler scaler{device};
    ht::accumulator acc{model};
#if defined(HALFTONE_TEST_RIGHT)
    optimizer.step(scaler.unscale(acc.take()));
#else
    optimizer.step(acc.take());
#endif
}
