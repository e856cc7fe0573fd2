// SPDX-License-Identifier: MIT
/// \file
/// A vision transformer against torchvision's on the CPU in bfloat16, where the residual stream is fp32 as PyTorch's is.
#include <doctest/doctest.h>

#include <halftone/amp.hpp>

#include "nn/batch_invariance.hpp"
#include "nn/vit_checks.hpp"

namespace nn_vit_bf16_tests {

TEST_CASE("vit: in bfloat16 at most twice as far off as PyTorch's autocast") {
    halftone::cpu device{{.threads = 2}};
    vision_test::is_as_vit<halftone::amp_bf16>(device);
}

void check_vit_batches(int splits) {
    halftone::cpu device{{.threads = 2}};
    halftone::nn::vit<halftone::amp_bf16> model{device, vision_test::small_vit()};
    vision_test::generator{3}.fill(model.parameters());
    halftone::inference eval{device};
    batch_invariance::check_images(9, 12, splits, [&](const halftone::const_view<float, 4>& images) {
        return halftone::to_host(device, model.logits(eval, images));
    });
}

TEST_CASE("vit: an image has the same bits whatever images are beside it") { check_vit_batches(5); }
TEST_CASE("vit: the same in a thousand random divisions into batches" * doctest::skip()) { check_vit_batches(1000); }

}  // namespace nn_vit_bf16_tests
