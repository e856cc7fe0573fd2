// SPDX-License-Identifier: MIT
/// \file
/// A vision transformer against torchvision's on any device.
#pragma once

#include <halftone/nn/vit.hpp>
#include <halftone/policy/recipe.hpp>

#include "nn/vision_checks.hpp"

namespace vision_test {

inline ht::nn::vit_config small_vit() {
    return {.image_size = 12, .patch_size = 4, .num_layers = 2, .num_heads = 4, .hidden_dim = 16, .mlp_dim = 24,
            .num_classes = 10};
}

template <class P, class Device>
void is_as_vit(Device& device) {
    const golden_case golden = only_case("vit.txt");
    ht::nn::vit<P> model{device, small_vit()};
    generator values{golden.seed};
    values.fill(model.parameters());
    const images_and_labels in(values, 4, 12);
    check_logits<P>(device, model, in, golden.logits, golden.logits_off);
    ht::tape tape{device};
    support::gradient_sink sink(model.parameters());
    const auto loss = model.loss(tape, in);
    check_loss<P>(static_cast<double>(loss.item()), golden);
    tape.backward(loss, sink);
    check_gradients<P>(model.parameters(), sink, golden);
}

}  // namespace vision_test
