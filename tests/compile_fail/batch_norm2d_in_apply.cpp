// SPDX-License-Identifier: MIT
// expect: halftone: batch_norm2d: the functions of a custom operation (ht::apply) run in a context that does not record, where it would use running statistics even in training: call it on the tape, or call ht::batch_norm, whose options specify whether it trains
#include <halftone/autodiff/op/apply.hpp>
#include <halftone/kernel.hpp>
#include <halftone/nn/channel_norm.hpp>

namespace ht = halftone;

const ht::nn::batch_norm2d<ht::at<ht::full_fp32, "bn">>* layer = nullptr;

struct normal {
    static constexpr const char* name = "normal";
    static auto forward(auto& ctx, const auto& x) {
#if defined(HALFTONE_TEST_RIGHT)
        return ht::batch_norm(ctx, x, layer->running_mean, layer->running_var, layer->weight, layer->bias, {.training = true});
#else
        return (*layer)(ctx, x);
#endif
    }
    static auto backward(auto&, const auto& dy) { return dy; }
};

auto train(ht::tape<ht::cpu>& tape, const ht::variable<float, 4>& x) { return ht::apply<normal>(tape, (*layer)(tape, x)); }
