// SPDX-License-Identifier: MIT
// expect: halftone: sgd: momentum adds up gradients and overflows in fp16, or a type of as short a range (role `state`)
#include <halftone/optim/sgd.hpp>

#include "../optim/small_model.hpp"

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using policy = ht::with_state<ht::amp_bf16, ht::bfloat16>;
#else
using policy = ht::with_state<ht::amp_bf16, ht::float16>;
#endif

void step(ht::cpu& device, small::model<policy>& model) {
    ht::sgd optimizer{device, model};
    ht::accumulator acc{model, ht::unscaled};
    optimizer.step(acc.take());
}
