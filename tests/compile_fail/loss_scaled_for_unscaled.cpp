// SPDX-License-Identifier: MIT
// expect: halftone: accumulator: this loss is scaled, and the accumulator was declared with ht::unscaled
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "../optim/small_model.hpp"

namespace ht = halftone;

void backward(ht::cpu& device, small::model<ht::amp_bf16>& model, small::tape& tape) {
    ht::grad_scaler scaler{device};
    ht::accumulator acc{model, ht::unscaled};
#if defined(HALFTONE_TEST_RIGHT)
    (void)scaler;
    tape.backward(small::loss{}, acc, model.parameters());
#else
    tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
#endif
}
