// SPDX-License-Identifier: MIT
// expect: halftone: scale: this loss is scaled already
#include <halftone/optim/adamw.hpp>
#include <halftone/optim/clip.hpp>
#include <halftone/scale/grad_scaler.hpp>

#include "../optim/small_model.hpp"

namespace ht = halftone;

auto twice(ht::grad_scaler<ht::cpu>& scaler) {
    const auto loss = scaler.scale(small::loss{});
#if defined(HALFTONE_TEST_RIGHT)
    return loss;
#else
    return scaler.scale(loss);
#endif
}
