// SPDX-License-Identifier: MIT
/// \file
/// Models of images on the emulated GPU: a vision transformer compared with torchvision's; a step and the evaluation of a
/// narrow ResNet compared with the CPU's.
#include <doctest/doctest.h>
#include <emulator/device.hpp>

#include <halftone/amp.hpp>
#include <halftone/kernel/device.hpp>

#include "nn/resnet_checks.hpp"
#include "nn/vit_checks.hpp"

namespace emulator_models_vision_tests {

using namespace vision_test;

TEST_CASE("vit on a GPU: in bfloat16 at most twice as far off as PyTorch's autocast") {
    ht::emulator::device device;
    is_as_vit<ht::amp_bf16>(device);
}

/// All results of a step: gradients, running statistics, and then the logits in evaluation.
template <class Device>
std::vector<doubles> step_of_narrow_resnet(Device& device) {
    ht::nn::resnet<ht::full_fp32> model{
        device, {.layers = {1, 1, 1, 1}, .num_classes = 10, .width = 4, .stem = ht::nn::resnet_stem::cifar}};
    generator values{1};
    values.fill(model.parameters(), weight_scale);
    const images_and_labels in(values, 2, 16);
    ht::tape tape{device};
    support::gradient_sink sink(model.parameters());
    tape.backward(model.loss(tape, in), sink);
    std::vector<doubles> all;
    for (std::size_t i = 0; i < model.parameters().entries().size(); ++i) {
        const auto numbers =
            model.parameters().entries()[i].is_state ? support::read_masters(model.parameters(), i) : sink.entry(i);
        all.emplace_back(numbers.begin(), numbers.end());
    }
    ht::inference eval{device};
    all.push_back(support::doubles(ht::to_host(device, model.logits(eval, in.images)).view()));
    return all;
}

TEST_CASE("resnet on a GPU: a step and evaluation are the CPU's, in float32") {
    ht::emulator::device device;
    ht::cpu cpu{{.threads = 1}};
    const std::vector<doubles> got = step_of_narrow_resnet(device), wanted = step_of_narrow_resnet(cpu);
    REQUIRE(got.size() == wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        CHECK(off(got[i], wanted[i]) <= 1e-4);
    }
}

}  // namespace emulator_models_vision_tests
