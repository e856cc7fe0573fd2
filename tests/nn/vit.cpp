// SPDX-License-Identifier: MIT
/// \file
/// A vision transformer compared with torchvision's on the CPU: logits, loss and every gradient in float32; its paths and
/// initial parameters; errors.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>

#include "nn/vit_checks.hpp"

namespace nn_vit_tests {

using namespace vision_test;
using strings = std::vector<std::string>;

TEST_CASE("vit: logits, loss and gradients are torchvision's, in float32") {
    ht::cpu device{{.threads = 2}};
    is_as_vit<ht::full_fp32>(device);
}

TEST_CASE("vit: paths, initial parameters") {
    ht::cpu device{{.threads = 1}};
    const ht::nn::vit<ht::full_fp32> model{
        device, {.image_size = 8, .patch_size = 2, .num_layers = 1, .num_heads = 2, .hidden_dim = 24, .mlp_dim = 48}};
    strings paths;
    std::vector<double> largest;
    for (std::size_t i = 0; i < model.parameters().entries().size(); ++i) {
        paths.push_back(model.parameters().entries()[i].path);
        largest.push_back(0);
        for (const float v : support::read_masters(model.parameters(), i))
            largest.back() = std::max(largest.back(), std::fabs(static_cast<double>(v)));
    }
    CHECK(paths == strings{"embed.proj.weight", "embed.proj.bias", "embed.class_token", "embed.positions",
                           "h.0.attn.norm.gain", "h.0.attn.norm.bias", "h.0.attn.qkv.weight", "h.0.attn.qkv.bias",
                           "h.0.attn.proj.weight", "h.0.attn.proj.bias", "h.0.mlp.norm.gain", "h.0.mlp.norm.bias",
                           "h.0.mlp.up.weight", "h.0.mlp.up.bias", "h.0.mlp.down.weight", "h.0.mlp.down.bias", "norm.gain",
                           "norm.bias", "head.weight", "head.bias"});
    CHECK(model.parameters().entries()[3].count == 17 * 24);
    // The largest of the uniform numbers is almost certainly above 95% of their bound. The largest of 408 normal ones is between
    // 2 and 5 standard deviations with probability above 1 - 1e-4.
    const auto reaches = [&](std::size_t i, double bound) {
        return largest[i] <= bound * 1.000001 && largest[i] > 0.95 * bound;
    };
    CHECK(reaches(6, std::sqrt(6.0 / 96)));
    CHECK(reaches(8, std::sqrt(1.0 / 24)));
    CHECK(reaches(12, std::sqrt(6.0 / 72)));
    CHECK(reaches(14, std::sqrt(6.0 / 72)));
    CHECK((largest[3] > 2 * 0.02 && largest[3] < 5 * 0.02));
    CHECK((largest[0] > 2 / std::sqrt(12.0) && largest[0] < 5 / std::sqrt(12.0)));
    for (const std::size_t zero : {1, 2, 5, 7, 9, 13, 15, 18, 19}) CHECK(largest[zero] == 0);
}

TEST_CASE("vit: invalid configurations and batches") {
    ht::cpu device{{.threads = 1}};
    const auto make = [&](const ht::nn::vit_config& c) { ht::nn::vit<ht::full_fp32> model{device, c}; };
    CHECK_THROWS_WITH_AS(make({.num_layers = 0}), "vit: 0 layers of 12 heads and 1000 classes; expected at least 1 of each",
                         ht::argument_error);
    CHECK_THROWS_WITH_AS(make({.image_size = 30}), "vit: patches of 16 do not divide images of 30", ht::argument_error);
    CHECK_THROWS_AS(make({.num_heads = 5}), ht::argument_error);
    CHECK_THROWS_AS(make({.dropout = 1.5f}), ht::argument_error);
    const ht::nn::vit<ht::full_fp32> model{device, small_vit()};
    generator values;
    images_and_labels in(values, 4, 12);
    ht::tape tape{device};
    in.labels = {in.label_ids.data(), {3}};
    CHECK_THROWS_WITH_AS(model.loss(tape, in), "vit: images are (4, 3, 12, 12), labels (3)", ht::shape_error);
    const ht::const_view<float, 4> small(in.pixels.data(), {1, 3, 8, 12});
    CHECK_THROWS_WITH_AS(model.logits(tape, small), "vit: images are (1, 3, 8, 12); expected (1, 3, 12, 12)", ht::shape_error);
}

}  // namespace nn_vit_tests
