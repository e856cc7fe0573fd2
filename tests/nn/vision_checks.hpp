// SPDX-License-Identifier: MIT
/// \file
/// Models of images compared with torchvision's (golden/vision.py) on any device: logits, loss, every gradient; for a ResNet
/// also running statistics and the logits in evaluation.
///
///     is_as_resnet18<ht::full_fp32>(device);
///     is_as_vit<ht::full_fp32>(device);
#pragma once

#include <halftone/tensor/host_tensor.hpp>

#include "nn/golden_model.hpp"

namespace vision_test {

using namespace golden_model;

/// Images and labels from the generator, which has generated the model's masters before.
struct images_and_labels {
    std::vector<float> pixels;
    std::vector<std::int32_t> label_ids;
    ht::const_view<float, 4> images;
    ht::const_view<std::int32_t, 1> labels;

    images_and_labels(generator& values, int count, ht::extent size)
        : pixels(values.numbers(static_cast<std::size_t>(count * 3 * size * size), 1.0f)),
          label_ids(values.ids(count, 10)),
          images(pixels.data(), {count, 3, size, size}),
          labels(label_ids.data(), {count}) {}
    images_and_labels(const images_and_labels&) = delete;
};

inline golden_case only_case(const char* file) {
    std::vector<golden_case> cases = read_cases(file);
    REQUIRE(cases.size() == 1);
    return cases[0];
}

/// The 64 sums by which golden/vision.py represents a tensor.
inline doubles sums(const std::vector<float>& values) {
    generator signs{1};
    doubles all(std::min<std::size_t>(64, values.size()));
    for (std::size_t i = 0; i < values.size(); ++i)
        all[i % 64] += signs.next() < 32768 ? static_cast<double>(values[i]) : -static_cast<double>(values[i]);
    return all;
}

template <class P, class Model, class Device>
void check_logits(Device& device, const Model& model, const images_and_labels& in, const doubles& wanted, double of_pytorch) {
    ht::inference eval{device};
    const auto logits = model.logits(eval, in.images);
    CHECK(logits.shape() == ht::shape<2>{in.images.extent_of(0), 10});
    CHECK(off(support::doubles(ht::to_host(device, logits).view()), wanted) <= allowed<P>(of_pytorch));
}

}  // namespace vision_test
