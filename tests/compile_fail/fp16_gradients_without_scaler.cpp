// SPDX-License-Identifier: MIT
// expect: halftone: step: this model passes gradients through fp16, or a type of as short a range, where they underflow, and these were not unscaled by a scaler
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "../optim/small_model.hpp"

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using policy = ht::amp_bf16;
#else
using policy = ht::amp_fp16;
#endif

void step(ht::cpu& device, small::model<policy>& model) {
    ht::adamw optimizer{device, model};
    ht::accumulator acc{model, ht::unscaled};
    optimizer.step(acc.take());
}
