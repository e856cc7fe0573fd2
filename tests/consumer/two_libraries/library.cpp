// SPDX-License-Identifier: MIT
/// \file
/// Built into two shared libraries, one of them with -ffast-math. LIBRARY is the namespace of its functions.
#include <halftone/amp.hpp>

#include "library.hpp"

namespace ht = halftone;

namespace {

/// y = x weight' + bias, all zero in the beginning.
struct line : ht::nn::model {
    using policy = ht::amp_fp16;
    ht::nn::linear<ht::at<policy, "fit">> fit;

    explicit line(ht::cpu& device) : model{device}, fit{parameters(), 2, 1, {.mean = 0}} { commit(*this); }
    static decltype(auto) visit(auto&& self, auto&& f) { return f(self.fit); }
};

}  // namespace

namespace LIBRARY {

bool is_finite(float x) { return ht::is_finite(x); }

std::uint16_t to_bfloat16(float x) { return ht::bfloat16(x).bits(); }

std::uint16_t to_float16(float x) { return ht::float16(x).bits(); }

std::string complaint() {
    try {
        ht::fail<ht::argument_error>("complaint: given ", 1, "; expected ", 2);
    } catch (const ht::error& e) {
        return e.what();
    }
}

void product(const float* a, const float* b, float* c, int rows, int inner, int columns) {
    ht::cpu device{{.threads = 2}};
    ht::matmul<ht::amp_bf16>(device, ht::const_view<float, 2>(a, {rows, inner}),
                             ht::const_view<float, 2>(b, {inner, columns}), ht::view<float, 2>(c, {rows, columns}));
}

fitted fit(const float* x, const float* targets, int points, int steps) {
    ht::cpu device{{.threads = 2}};
    line model{device};
    ht::sgd optimizer{device, model, {.lr = 0.25}};
    ht::grad_scaler scaler{device, {.init_scale = 1024}};
    ht::accumulator acc{model};
    ht::tape tape{device};
    for (int step = 0; step < steps; ++step) {
        const auto prediction = model.fit(tape, tape.constant(ht::const_view<float, 2>(x, {points, 2})));
        tape.backward(
            scaler.scale(ht::mean_squared_error(tape, prediction, ht::const_view<float, 2>(targets, {points, 1}))),
            acc);
        auto grads = scaler.unscale(acc.take());
        ht::clip_grad_norm(grads, 8.0f);
        optimizer.step(grads);
        scaler.update();
    }
    const auto weight = model.fit.weight.master();
    return {weight(0, 0), weight(0, 1), model.fit.bias.master()(0), static_cast<int>(optimizer.skipped_steps()),
            scaler.get_scale()};
}

}  // namespace LIBRARY
