// SPDX-License-Identifier: MIT
// expect: halftone: conv2d takes images (batch, channels, height, width) and a weight
#include <halftone/autodiff/op/conv2d.hpp>
#include <halftone/kernel/conv2d/cpu.hpp>

namespace ht = halftone;

void see(ht::inference<ht::cpu>& ctx, const ht::variable<float, 3>& image, const ht::variable<float, 4>& weight) {
#if defined(HALFTONE_TEST_RIGHT)
    const auto& s = image.shape();
    ht::conv2d(ctx, ht::reshape(ctx, image, ht::shape<4>{1, s[0], s[1], s[2]}), weight);
#else
    ht::conv2d(ctx, image, weight);
#endif
}
