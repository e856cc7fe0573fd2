// SPDX-License-Identifier: MIT
/// \file
/// Eight-bit operands on watched tapes, on every device: a layer of known numbers under delayed scaling.
///
///     operand_checks::counts_are_exact(device);
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/amp.hpp>
#include <halftone/observe/numerics/numerics.hpp>
#include <halftone/observe/overflow/overflow.hpp>

namespace operand_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::scaled_tensor;

using delayed = ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<2>>;

template <class P>
struct layer : ht::nn::model {
    using policy = P;
    ht::nn::linear<ht::at<P, "fc">> fc;
    explicit layer(auto& device) : model{device}, fc{parameters(), 4, 2} { commit(*this, 1); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fc); }
};

inline std::vector<bfloat16> rounded(const std::vector<float>& values) {
    std::vector<bfloat16> v;
    for (const float x : values) v.push_back(bfloat16(x));
    return v;
}

/// Two rows of four in, two of two out; the gradient of what comes out is dy, exactly.
template <class Device, class Model, class Tape, class Acc>
void pass(Device&, Model& model, Tape& tape, Acc& acc, const std::vector<bfloat16>& x,
          const std::vector<bfloat16>& dy) {
    const auto in = tape.to_device(ht::const_view<bfloat16, 2>(x.data(), {2, 4}));
    const auto weights = tape.to_device(ht::const_view<bfloat16, 2>(dy.data(), {2, 2}));
    const auto y = model.fc(tape, in);
    tape.backward(ht::sum(tape, ht::mul(tape, y, weights)), acc);
}

inline const ht::numerics_row* find(const ht::numerics_view& view, scaled_tensor tensor) {
    for (const ht::numerics_row& r : view.rows) {
        if (r.is_operand() && r.operand.tensor == tensor) return &r;
    }
    return nullptr;
}

template <class Device>
void counts_are_exact(Device& device) {
    layer<delayed> model{device};
    model.fc.weight.assign(std::vector<float>{1, 0, 0, 0x1p-12f, 0, 0, 1.5f, 0});
    ht::sgd optimizer{device, model, {.lr = 0}};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device, ht::watched};
    ht::numerics_collector numerics{device, tape};
    // The scale is 1 at first. Beyond 464 a number is no longer rounded to 448, and up to 2^-10 it is rounded to 0.
    const auto x = rounded({1024, 496, 448, 464, 0x1p-10f, 0x1.8p-10f, 0, -2048});
    const auto dy = rounded({1, 0x1p-17f, 65536, -57344});
    pass(device, model, tape, acc, x, dy);
    ht::numerics_view view = numerics.take(model, 1, 1);
    const ht::numerics_row* in = find(view, scaled_tensor::input);
    REQUIRE(in != nullptr);
    CHECK(in->by.layer == "fc");
    CHECK(in->by.operation == "linear");
    CHECK(in->pass == ht::pass::forward);
    CHECK(in->parameter == "fc.weight");
    CHECK(in->format == ht::value_format::float8_e4m3);
    CHECK(in->operand.scale == 1);
    CHECK(in->operand.amax == 2048);
    CHECK(in->operand.saturated == 3);  // 464 is a tie, and 448 is the even neighbour
    CHECK(in->operand.flushed == 1);
    CHECK(in->operand.flushed_by_own == 2);
    CHECK(in->underflowed == 1);
    CHECK(in->operand.is_delayed());
    CHECK(in->counts.elements() == 8);
    CHECK(in->counts.zeros == 2);
    CHECK(in->counts.largest == 448);
    CHECK(in->counts.count(8, 8) == 5);
    CHECK(in->counts.count(-9, -9) == 1);
    const ht::numerics_row* weight = find(view, scaled_tensor::weight);
    REQUIRE(weight != nullptr);
    CHECK(weight->operand.amax == 1.5f);
    CHECK(weight->operand.saturated == 0);
    CHECK(weight->operand.flushed == 1);
    CHECK(weight->operand.flushed_by_own == 0);
    const ht::numerics_row* gradient = find(view, scaled_tensor::gradient);
    REQUIRE(gradient != nullptr);
    CHECK(gradient->pass == ht::pass::backward);
    CHECK(gradient->format == ht::value_format::float8_e5m2);
    CHECK(gradient->operand.saturated == 1);
    CHECK(gradient->operand.flushed == 1);
    CHECK(gradient->counts.largest == 57344);
    CHECK(gradient->doublings() == 0);

    // The next window's scale is for the amax of this one.
    auto grads = acc.take();
    optimizer.step(grads);
    pass(device, model, tape, acc, x, dy);
    pass(device, model, tape, acc, x, dy);  // another micro-batch adds to the counts
    view = numerics.take(model, 1, 2);
    in = find(view, scaled_tensor::input);
    REQUIRE(in != nullptr);
    CHECK(in->operand.scale == 448.0f / 2048);
    CHECK(in->operand.saturated == 0);
    CHECK(in->operand.flushed == 4);
    CHECK(in->operand.flushed_by_own == 4);
    CHECK(in->counts.elements() == 16);
    acc.discard();
}

/// An input that is infinite from the start, a weight that is: the operand is named, and not the product's result.
template <class Device>
void overflow_is_named(Device& device) {
    layer<delayed> model{device};
    ht::accumulator acc{model, ht::unscaled};
    ht::tape tape{device, ht::watched};
    ht::overflow_finder finder{device, tape};
    const float infinity = std::numeric_limits<float>::infinity();
    const auto x = rounded({1, 2, 3, 4, 5, 6, 7, 8}), dy = rounded({1, 1, 1, 1});
    std::vector<ht::overflow> found;
    const auto step = [&](const std::vector<bfloat16>& in) {
        pass(device, model, tape, acc, in, dy);
        acc.discard();
        finder.end_step();
        found = finder.take();
        return found.size();
    };
    CHECK(step(x) == 0);
    REQUIRE(step(rounded({1, 2, 3, 4, -infinity, 6, 7, 8})) == 1);
    CHECK(found[0].role == ht::tensor_role::operand);
    CHECK(found[0].operand.tensor == scaled_tensor::input);
    CHECK(found[0].operand.format == ht::value_format::float8_e4m3);
    CHECK(found[0].scale == 1);
    CHECK(found[0].text() ==
          "step 2 taken: fc, linear, forward: 1 -inf of 8 values of the input of fc.weight's product in bfloat16, read "
          "in float8_e4m3 at a scale of 1, the finite ones up to 8; an input of the tape held 1 -inf of 8 "
          "values in bfloat16 already");
    model.fc.weight.assign(std::vector<float>{1, 1, 1, 1, 1, 1, 1, infinity});
    REQUIRE(step(x) == 1);
    CHECK(found[0].operand.tensor == scaled_tensor::weight);
    CHECK(found[0].kind() == std::string("+inf"));
    CHECK(found[0].parameter == "fc.weight");
    // A result that is not finite while the product's operands are: the bias is not finite.
    model.fc.weight.assign(std::vector<float>(8, 1.0f));
    model.fc.bias.assign(std::vector<float>{0, infinity});
    REQUIRE(step(x) == 1);
    CHECK(found[0].role == ht::tensor_role::value);
    CHECK(found[0].scale == 0);
}

}  // namespace operand_checks
