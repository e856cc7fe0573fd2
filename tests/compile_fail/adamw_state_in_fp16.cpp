// SPDX-License-Identifier: MIT
// expect: halftone: adamw: the squares of gradients underflow in fp16, or a type of as short a range (role `state`)
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "../optim/small_model.hpp"

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using policy = ht::with_state<ht::amp_bf16, ht::bfloat16>;
#else
using policy = ht::with_state<ht::amp_bf16, ht::float16>;
#endif

void step(ht::cpu& device, small::model<policy>& model) {
    ht::adamw optimizer{device, model};
    ht::accumulator acc{model, ht::unscaled};
    optimizer.step(acc.take());
}
