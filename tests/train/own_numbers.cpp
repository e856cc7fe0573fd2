// SPDX-License-Identifier: MIT
/// \file
/// Models of several kinds learn with number types that the library does not know, by every optimizer.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/nn/llama.hpp>
#include <halftone/nn/resnet.hpp>

#include "support/own_numbers.hpp"

namespace train_own_numbers_tests {

namespace ht = halftone;

struct images {
    ht::const_view<float, 4> images;
    ht::const_view<std::int32_t, 1> labels;
};
struct texts {
    ht::const_view<std::int32_t, 2> tokens, targets;
};

/// bfloat16 as a user would write it: its range is float's, so that moments can have it.
class wide16 {
  public:
    wide16() = default;
    explicit wide16(float x) : inner_(x) {}
    operator float() const { return inner_; }

  private:
    ht::bfloat16 inner_;
};

}  // namespace train_own_numbers_tests

template <>
struct halftone::number_traits<train_own_numbers_tests::wide16> : halftone::ieee_format<8, -125, 128> {
    static constexpr const char* name = "wide16";
};

namespace train_own_numbers_tests {

struct own_moments : ht::amp_fp16 {
    using state = wide16;
    using input_grad = support::float16_e6m9;
    using weight_grad = support::float16_e6m9;
};

/// Six steps by the optimizer of these options lower the loss of one batch.
template <class Options, class Model, class Batch>
void learns(ht::cpu& device, Model& model, const Batch& b) {
    typename Options::template optimizer<ht::cpu, Model> optimizer(device, model, Options{});
    CAPTURE(optimizer.name());
    ht::tape tape{device};
    ht::accumulator acc{model};
    ht::grad_scaler scaler{device, {.enabled = ht::model_needs_scaling<Model>}};
    float first = 0, last = 0;
    for (int i = 0; i < 6; ++i) {
        const auto loss = model.loss(tape, b);
        last = static_cast<float>(loss.item());
        if (i == 0) first = last;
        tape.backward(scaler.scale(loss), acc);
        auto grads = scaler.unscale(acc.take());
        optimizer.step(grads);
        scaler.update();
    }
    CHECK(last < first);
}

template <class P, class... Options>
void resnet_learns() {
    ht::cpu device{{.threads = 2}};
    std::vector<float> pixels(2 * 3 * 32 * 32);
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i * 2654435761u % 1000) / 500 - 1;
    const std::int32_t labels[] = {1, 3};
    ht::nn::resnet<P> model{device, {.num_classes = 10}};
    (learns<Options>(device, model, images{{pixels.data(), {2, 3, 32, 32}}, {labels, {2}}}), ...);
}
template <class P, class... Options>
void llama_learns() {
    ht::cpu device{{.threads = 2}};
    std::int32_t tokens[32], targets[32];
    for (int i = 0; i < 32; ++i) tokens[i] = i * 7 % 64, targets[i] = (i + 1) * 7 % 64;
    ht::nn::llama<P> model{device, {.vocab_size = 64, .hidden_size = 32, .intermediate_size = 64, .num_hidden_layers = 2}};
    (learns<Options>(device, model, texts{{tokens, {2, 16}}, {targets, {2, 16}}}), ...);
}

TEST_CASE("models learn whose masters, operands, results, gradients and sums are floats of 6 exponent bits") {
    resnet_learns<support::pure_e6m9, ht::sgd_options>();
    llama_learns<support::pure_e6m9, ht::adamw_options, ht::lion_options, ht::muon_options, ht::adafactor_options,
                 ht::adamw_8bit_options>();
}
TEST_CASE("a model learns whose moments and operands of backward products have a user's own types") {
    llama_learns<own_moments, ht::adamw_options>();
}
TEST_CASE("models learn whose masters are numbers in fixed point that float does not hold") {
    resnet_learns<support::fixed_masters, ht::sgd_options>();
    llama_learns<support::fixed_masters, ht::adamw_options, ht::lion_options, ht::muon_options>();
}
TEST_CASE("products of 8-bit logarithms, which bfloat16 does not hold, are exact but for their sums in float") {
    ht::cpu device{{.threads = 1}};
    ht::store store{device.memory()};
    const ht::nn::linear<ht::with_output<support::log8_hybrid, float>> layer{store, 16, 16};
    store.commit(1);
    std::vector<float> x(16 * 16), w(16 * 16);
    // The largest number is among them, so that the scales are 1.
    for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<float>(
            support::log8(i == 5 ? 0x1.d5818ep+7f : static_cast<float>(i * 2654435761u % 1000) / 500 - 1));
        w[i] = static_cast<float>(
            support::log8(i == 7 ? 0x1.d5818ep+7f : static_cast<float>(i * 2246822519u % 1000) / 500 - 1));
    }
    layer.weight.assign(w);
    ht::inference ctx{device};
    const auto y = layer(ctx, ctx.constant(ht::const_view<float, 2>(x.data(), {16, 16})));
    for (std::size_t i = 0; i < 16; ++i) {
        for (std::size_t j = 0; j < 16; ++j) {
            double sum = 0, magnitudes = 0;
            for (std::size_t k = 0; k < 16; ++k) {
                const double product = static_cast<double>(x[i * 16 + k]) * static_cast<double>(w[j * 16 + k]);
                sum += product, magnitudes += product < 0 ? -product : product;
            }
            const double got = static_cast<double>(y.view()(static_cast<ht::extent>(i), static_cast<ht::extent>(j)));
            CHECK((got < sum ? sum - got : got - sum) <= 20 * 0x1p-24 * magnitudes);
        }
    }
}
TEST_CASE("models learn whose operands are 8-bit logarithms, under scales") {
    resnet_learns<support::log8_hybrid, ht::sgd_options>();
    llama_learns<support::log8_hybrid, ht::adamw_options>();
}

}  // namespace train_own_numbers_tests
