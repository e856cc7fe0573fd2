// SPDX-License-Identifier: MIT
// expect: halftone: accumulator: this loss is not scaled, and the accumulator expects scaled ones: write tape.backward(scaler.scale(loss), acc)
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "../optim/small_model.hpp"

namespace ht = halftone;

void backward(ht::cpu& device, small::model<ht::amp_fp16>& model, small::tape& tape) {
    ht::grad_scaler scaler{device};
    ht::accumulator acc{model};
#if defined(HALFTONE_TEST_RIGHT)
    tape.backward(scaler.scale(small::loss{}), acc, model.parameters());
#else
    tape.backward(small::loss{}, acc, model.parameters());
#endif
}
