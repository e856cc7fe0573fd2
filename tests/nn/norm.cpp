// SPDX-License-Identifier: MIT
/// \file
/// Normalising layers: their parameters, which are fp32 under every policy, and their types.
#include <cmath>

#include "nn/layers.hpp"

namespace nn_norm_tests {

namespace ht = halftone;
using nn_test::alone;
using nn_test::input;
using strings = std::vector<std::string>;

TEST_CASE("nn::layer_norm and nn::rms_norm: parameters and their initial values") {
    const alone<ht::nn::layer_norm<ht::at<ht::amp_bf16, "norm">>> layer(67);
    CHECK(layer.paths() == strings{"norm.gain", "norm.bias"});
    const alone<ht::nn::rms_norm<ht::at<ht::amp_bf16, "norm">>> rms(67);
    CHECK(rms.paths() == strings{"norm.gain"});
    for (ht::extent i = 0; i < 67; ++i) {
        CHECK(layer.layer.gain.values()(i) == 1.0f);
        CHECK(layer.layer.bias.values()(i) == 0.0f);
        CHECK(rms.layer.gain.values()(i) == 1.0f);
    }
    // Computed in fp32: kernels read the masters, and there is no copy.
    CHECK(layer.parameters.groups()[0].copy_bytes == 0);
    static_assert(std::is_same_v<decltype(layer.layer.gain)::compute, float>);
}

TEST_CASE("nn::layer_norm and nn::rms_norm: rows of mean 0 and mean square 1, in the policy's output") {
    const alone<ht::nn::layer_norm<ht::amp_bf16>> layer(64);
    const alone<ht::nn::rms_norm<ht::with_output<ht::amp_bf16, float>>> rms(64);
    const input<ht::bfloat16, 3> x(ht::shape<3>{2, 3, 64});
    ht::cpu device{{.threads = 1}};
    ht::inference ctx{device};
    const auto y = layer.layer(ctx, ctx.constant(x.view));
    const auto z = rms.layer(ctx, ctx.constant(x.view));
    static_assert(std::is_same_v<decltype(y), const ht::variable<ht::bfloat16, 3>>);
    static_assert(std::is_same_v<decltype(z), const ht::variable<float, 3>>);
    for (int row = 0; row < 6; ++row) {
        double mean = 0, squares = 0, rms_squares = 0;
        for (int j = 0; j < 64; ++j) {
            const double v = static_cast<double>(y.view().data()[row * 64 + j]),
                         w = static_cast<double>(z.view().data()[row * 64 + j]);
            mean += v / 64, squares += v * v / 64, rms_squares += w * w / 64;
        }
        // Values of magnitude at most 4, each rounded by 2^-9 of itself.
        CHECK(std::fabs(mean) < 4 * 0x1p-9);
        CHECK(squares == doctest::Approx(1).epsilon(2 * 0x1p-8));
        CHECK(rms_squares == doctest::Approx(1).epsilon(1e-5));
    }
    static_assert(std::is_same_v<decltype(std::declval<const ht::nn::layer_norm<ht::inherit>&>()(
                                     ht::autocast<ht::amp_fp16>(ctx), y)),
                                 ht::variable<ht::float16, 3>>);
}

}  // namespace nn_norm_tests
