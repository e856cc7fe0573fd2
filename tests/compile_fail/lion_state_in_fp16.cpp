// SPDX-License-Identifier: MIT
// expect: halftone: lion: a mean of gradients overflows and underflows in fp16, or a type of as short a range (role `state`)
#include <halftone/optim/lion.hpp>

#include "../optim/small_model.hpp"

namespace ht = halftone;

#if defined(HALFTONE_TEST_RIGHT)
using policy = ht::with_state<ht::amp_bf16, ht::bfloat16>;
#else
using policy = ht::with_state<ht::amp_bf16, ht::float16>;
#endif

void step(ht::cpu& device, small::model<policy>& model) {
    ht::lion optimizer{device, model};
    ht::accumulator acc{model, ht::unscaled};
    optimizer.step(acc.take());
}
