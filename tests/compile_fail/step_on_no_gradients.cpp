// SPDX-License-Identifier: MIT
// expect: halftone: step takes gradients: what acc.take() or scaler.unscale(acc.take()) returns
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "../optim/small_model.hpp"

namespace ht = halftone;

void step(ht::cpu& device, small::model<ht::amp_bf16>& model) {
    ht::adamw optimizer{device, model};
    ht::accumulator acc{model, ht::unscaled};
#if defined(HALFTONE_TEST_RIGHT)
    optimizer.step(acc.take());
#else
    optimizer.step(acc);
#endif
}
