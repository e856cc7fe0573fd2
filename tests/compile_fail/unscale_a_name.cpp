// SPDX-License-Identifier: MIT
// expect: halftone: unscale consumes the scaled gradients, so that they cannot be unscaled twice: write scaler.unscale(acc.take())
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "../optim/small_model.hpp"

namespace ht = halftone;

void step(ht::cpu& device, small::model<ht::amp_fp16>& model) {
    ht::grad_scaler scaler{device};
    ht::accumulator acc{model};
    auto grads = acc.take();
#if defined(HALFTONE_TEST_RIGHT)
    scaler.unscale(std::move(grads));
#else
    scaler.unscale(grads);
#endif
}
