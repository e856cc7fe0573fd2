// SPDX-License-Identifier: MIT
/// \file
/// A ResNet-18 compared with torchvision's on the CPU, in training and in evaluation, in float32; its paths; errors.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>

#include "nn/resnet_checks.hpp"

namespace nn_resnet_tests {

using namespace vision_test;
using strings = std::vector<std::string>;

TEST_CASE("resnet: a step of a ResNet-18, its statistics, and evaluation are torchvision's, in float32") {
    ht::cpu device{{.threads = 2}};
    is_as_resnet18<ht::full_fp32>(device);
}

TEST_CASE("resnet: paths, sizes, initial weights") {
    ht::cpu device{{.threads = 1}};
    const ht::nn::resnet<ht::full_fp32> narrow{
        device, {.layers = {1, 2, 1, 1}, .num_classes = 5, .width = 8, .stem = ht::nn::resnet_stem::cifar}};
    strings paths;
    for (const ht::store::entry& e : narrow.parameters().entries()) {
        if (e.path.ends_with("weight")) paths.push_back(e.path);
    }
    CHECK(paths == strings{"conv1.weight", "bn1.weight", "layer1.0.conv1.weight", "layer1.0.bn1.weight",
                           "layer1.0.conv2.weight", "layer1.0.bn2.weight", "layer2.0.conv1.weight", "layer2.0.bn1.weight",
                           "layer2.0.conv2.weight", "layer2.0.bn2.weight", "layer2.0.downsample.0.conv.weight",
                           "layer2.0.downsample.0.bn.weight", "layer2.1.conv1.weight", "layer2.1.bn1.weight",
                           "layer2.1.conv2.weight", "layer2.1.bn2.weight", "layer3.0.conv1.weight", "layer3.0.bn1.weight",
                           "layer3.0.conv2.weight", "layer3.0.bn2.weight", "layer3.0.downsample.0.conv.weight",
                           "layer3.0.downsample.0.bn.weight", "layer4.0.conv1.weight", "layer4.0.bn1.weight",
                           "layer4.0.conv2.weight", "layer4.0.bn2.weight", "layer4.0.downsample.0.conv.weight",
                           "layer4.0.downsample.0.bn.weight", "fc.weight"});
    // conv1 of 3x3 to 8 channels: normal, with variance 2 / (8 * 9). The mean square of 216 draws has a relative standard
    // deviation of 0.1, and is within 0.4 of the variance with probability above 1 - 1e-4.
    double squares = 0;
    for (const double v : support::read_masters(narrow.parameters(), 0)) squares += v * v;
    CHECK(squares / 216 == doctest::Approx(2.0 / 72).epsilon(0.4));
    // The numbers of parameters of torchvision's resnet18 and resnet34.
    CHECK(ht::nn::resnet<ht::full_fp32>{device, {}}.parameters().size() == 11689512);
    CHECK(ht::nn::resnet<ht::full_fp32>{device, {.layers = {3, 4, 6, 3}}}.parameters().size() == 21797672);
}

TEST_CASE("resnet: invalid configurations and batches") {
    ht::cpu device{{.threads = 1}};
    const auto make = [&](const ht::nn::resnet_config& c) { ht::nn::resnet<ht::full_fp32> model{device, c}; };
    CHECK_THROWS_WITH_AS(make({.width = 0}), "resnet: a width of 0 and 1000 classes; expected at least 1 of each",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(make({.layers = {2, 2, 0, 2}}), "resnet: a stage of 0 blocks; expected at least 1",
                         ht::argument_error);
    CHECK_THROWS_AS(make({.in_channels = 0}), ht::argument_error);
    CHECK_THROWS_AS(make({.norm = {.momentum = 2}}), ht::argument_error);
    const ht::nn::resnet<ht::full_fp32> model{device, {.layers = {1, 1, 1, 1}, .num_classes = 10, .width = 4}};
    generator values;
    images_and_labels in(values, 4, 12);
    ht::tape tape{device};
    in.labels = {in.label_ids.data(), {3}};
    CHECK_THROWS_WITH_AS(model.loss(tape, in), "resnet: images are (4, 3, 12, 12), labels (3)", ht::shape_error);
    const ht::const_view<float, 4> gray(in.pixels.data(), {4, 1, 12, 12});
    CHECK_THROWS_AS(model.logits(tape, gray), ht::shape_error);
}

}  // namespace nn_resnet_tests
