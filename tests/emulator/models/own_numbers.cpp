// SPDX-License-Identifier: MIT
/// \file
/// A whole model with number types that the library does not know on the emulated GPU.
#include <cstdint>
#include <vector>

#include <emulator/device.hpp>

#include <halftone/amp.hpp>
#include <halftone/kernel/device.hpp>
#include <halftone/nn/resnet.hpp>
#include <halftone/train/trainer.hpp>

#include "nn/gpt_gradients.hpp"
#include "support/own_numbers.hpp"
#include "train/overflow_checks.hpp"

namespace emulator_models_own_numbers_tests {

namespace ht = halftone;

template <class P, class T>
void within_what_rounding_does(float seed) {
    ht::emulator::device device{{.seed = 7}};
    nn_test::within_what_rounding_does_on<P, T>(device, seed);
}

TEST_CASE("gpt on the emulated machine: number types of a user's own") {
    SUBCASE("a float of 6 exponent bits") { within_what_rounding_does<support::amp_e6m9, support::float16_e6m9>(1024); }
    SUBCASE("and masters that float does not hold") {
        within_what_rounding_does<support::fixed_masters, support::float16_e6m9>(1024);
    }
    SUBCASE("operands in fixed point") { within_what_rounding_does<support::fixed_operands, support::fixed16>(64); }
}

/// Other tests look for races in these kernels.
ht::emulator::options quick(std::uint64_t seed) { return {.seed = seed, .check = ht::emulator::checking::values_only}; }

struct labelled {
    ht::const_view<float, 4> images;
    ht::const_view<std::int32_t, 1> labels;
};

TEST_CASE_TEMPLATE("resnet on the emulated machine: four steps with number types of a user's own lower the loss", P,
                   support::pure_e6m9, support::log8_hybrid, support::fixed_masters) {
    ht::emulator::device device{quick(3)};
    ht::nn::resnet<P> model{
        device, {.layers = {1, 1, 1, 1}, .num_classes = 10, .width = 4, .stem = ht::nn::resnet_stem::cifar}};
    std::vector<float> pixels(2 * 3 * 16 * 16);
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i * 2654435761u % 1000) / 500 - 1;
    const std::int32_t labels[] = {1, 3};
    const auto images = ht::to_device(device, ht::const_view<float, 4>(pixels.data(), {2, 3, 16, 16}));
    const auto classes = ht::to_device(device, ht::const_view<std::int32_t, 1>(labels, {2}));
    ht::sgd optimizer{device, model, {.lr = 0.02}};
    ht::tape tape{device};
    ht::accumulator acc{model};
    ht::grad_scaler scaler{device, {.enabled = ht::model_needs_scaling<ht::nn::resnet<P>>}};
    float first = 0, last = 0;
    for (int i = 0; i < 4; ++i) {
        const auto loss = model.loss(tape, labelled{images, classes});
        last = static_cast<float>(loss.item());
        if (i == 0) first = last;
        tape.backward(scaler.scale(loss), acc);
        auto grads = scaler.unscale(acc.take());
        optimizer.step(grads);
        scaler.update();
    }
    CAPTURE(first);
    CHECK(last < first);
}

TEST_CASE("overflow on a GPU: the first operation is found among results of a number type of a user's own") {
    ht::emulator::device gpu{quick(1)};
    overflow_checks::finds_each<support::amp_e6m9>(gpu, 61);
}

TEST_CASE("overflow on a GPU: a captured step with a number type of a user's own finds what overflows when it is replayed") {
    ht::emulator::device gpu{quick(2)};
    overflow_checks::loop<support::amp_e6m9, ht::emulator::device> l(gpu);
    ht::overflow_finder finder{gpu, l.tape};
    ht::captured_step step{gpu, [&](const overflow_checks::batch& b) { finder.end_step(l.step(b)); }};
    for (int n = 1; n <= 4; ++n) {
        if (n == 4) l.scale_weight("h.1.attn.proj.weight", 0x1p33f), l.scale_weight("h.1.attn.qkv.weight", 0x1p6f);
        step(l.whole());
    }
    CHECK(step.replays() > 0);
    const auto all = finder.take();
    REQUIRE(all.size() == 1);
    CHECK(all[0].step == 4);
    CHECK(all[0].by.layer == "h.1.attn.proj");
    CHECK(all[0].format == ht::value_format::of<support::float16_e6m9>());
}

}  // namespace emulator_models_own_numbers_tests
