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
/// Numbers of log8 between -1 and 1; the largest is among them, so that the scale of a tensor is 1.
std::vector<float> logarithms(std::uint64_t factor) {
    std::vector<float> all(16 * 16);
    for (std::size_t i = 0; i < all.size(); ++i)
        all[i] = static_cast<float>(support::log8(static_cast<float>(i * factor % 1000) / 500 - 1));
    all[5] = 0x1.d5818ep+7f;
    return all;
}
double sixteen_products(const std::vector<float>& a, std::size_t i, std::size_t a_step, const std::vector<float>& b,
                        std::size_t j, std::size_t b_step, double& magnitudes) {
    double sum = 0;
    magnitudes = 0;
    for (std::size_t k = 0; k < 16; ++k) {
        const double product = static_cast<double>(a[i + k * a_step]) * static_cast<double>(b[j + k * b_step]);
        sum += product, magnitudes += product < 0 ? -product : product;
    }
    return sum;
}
void exact_but_for_sums(double got, double sum, double magnitudes) {
    CHECK((got < sum ? sum - got : got - sum) <= 20 * 0x1p-24 * magnitudes);
}

/// A model of one product.
template <class P>
struct one_product : ht::nn::model {
    using policy = ht::with_output<P, float>;
    ht::nn::linear_no_bias<ht::at<policy, "product">> layer;

    template <class Device>
    explicit one_product(Device& device) : model(device), layer(parameters(), 16, 16) {
        commit(*this, 1);
    }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.layer); }
};

struct gradients_in_e5m2 : support::log8_hybrid {
    using grad = ht::float8_e5m2;
};

TEST_CASE_TEMPLATE("products of 8-bit logarithms, which bfloat16 does not hold, are exact but for their sums in float",
                   P, support::log8_hybrid, gradients_in_e5m2) {
    ht::cpu device{{.threads = 1}};
    const auto x = logarithms(2654435761u), w = logarithms(2246822519u);
    one_product<P> model{device};
    model.layer.weight.assign(w);
    ht::tape tape{device};
    const auto input = tape.leaf(ht::const_view<float, 2>(x.data(), {16, 16}));
    const auto y = model.layer(tape, input);
    double magnitudes = 0;
    for (std::size_t i = 0; i < 256; ++i) {
        const double sum = sixteen_products(x, i / 16 * 16, 1, w, i % 16 * 16, 1, magnitudes);
        exact_but_for_sums(static_cast<double>(y.view().data()[i]), sum, magnitudes);
    }
    // The gradient of the sum of y: of ones, which both types hold under any scale that is a power of two.
    ht::accumulator acc{model, ht::unscaled};
    tape.backward(ht::sum(tape, y), acc);
    const std::vector<float> ones(256, 1.0f);
    const auto* const gradient = tape.gradient(input).data();
    for (std::size_t i = 0; i < 256; ++i) {
        const double sum = sixteen_products(ones, 0, 1, w, i % 16, 16, magnitudes);
        exact_but_for_sums(static_cast<double>(gradient[i]), sum, magnitudes);
    }
}
TEST_CASE("models learn whose operands are 8-bit logarithms, under scales") {
    resnet_learns<support::log8_hybrid, ht::sgd_options>();
    llama_learns<support::log8_hybrid, ht::adamw_options>();
}

}  // namespace train_own_numbers_tests
