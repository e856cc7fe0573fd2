// SPDX-License-Identifier: MIT
/// \file
/// A whole ResNet-18 against torchvision's on any device: a step that normalises by the batch, the running statistics behind
/// it, and evaluation by these.
#pragma once

#include <halftone/nn/resnet.hpp>

#include "nn/vision_checks.hpp"

namespace vision_test {

/// golden/vision.py's scale of a weight: its fourth power is at most 16 by the number of elements.
inline float weight_scale(const ht::store::entry& e) {
    float scale = 1;
    while (scale * scale * scale * scale * static_cast<float>(e.count) > 16) scale /= 2;
    return scale;
}

/// Gradients and states by their sums.
template <class P>
void check_sums(const ht::store& s, const support::gradient_sink& sink, const golden_case& golden) {
    std::size_t parameter = 0, state = 0;
    for (std::size_t i = 0; i < s.entries().size(); ++i) {
        CAPTURE(s.entries()[i].path);
        if (s.entries()[i].is_state) {
            REQUIRE(state < golden.states.size());
            CHECK(off(sums(support::read_masters(s, i)), golden.states[state]) <= allowed<P>(golden.states_off[state]));
            ++state;
        } else {
            REQUIRE(parameter < golden.gradients.size());
            CHECK(off(sums(sink.entry(i)), golden.gradients[parameter]) <= allowed<P>(golden.gradients_off[parameter]));
            ++parameter;
        }
    }
    CHECK(parameter == golden.gradients.size());
    CHECK(state == golden.states.size());
}

template <class P, class Device>
void is_as_resnet18(Device& device) {
    const golden_case golden = only_case("resnet.txt");
    ht::nn::resnet<P> model{device, {.num_classes = 10}};
    generator values{golden.seed};
    values.fill(model.parameters(), weight_scale);
    const images_and_labels in(values, 2, 64);
    ht::tape tape{device};
    support::gradient_sink sink(model.parameters());
    const auto logits = model.logits(tape, in.images);
    CHECK(off(support::doubles(ht::to_host(device, logits).view()), golden.logits) <= allowed<P>(golden.logits_off));
    const auto loss = ht::cross_entropy(tape, logits, in.labels);
    check_loss<P>(static_cast<double>(loss.item()), golden);
    tape.backward(loss, sink);
    check_sums<P>(model.parameters(), sink, golden);
    check_logits<P>(device, model, in, golden.evaluation, golden.evaluation_off);
}

}  // namespace vision_test
