// SPDX-License-Identifier: MIT
// expect: halftone: this operation takes images with four axes, (batch, channels, height, width): ht::unsqueeze adds an axis to three
#include <halftone/autodiff/op/pooling.hpp>
#include <halftone/autodiff/op/shapes.hpp>
#include <halftone/kernel.hpp>

namespace ht = halftone;

auto pooled(ht::tape<ht::cpu>& tape, const ht::variable<float, 3>& x) {
#if defined(HALFTONE_TEST_RIGHT)
    return ht::avg_pool2d(tape, ht::unsqueeze(tape, x, ht::axes<0>), {2});
#else
    return ht::avg_pool2d(tape, x, {2});
#endif
}
