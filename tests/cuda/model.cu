// SPDX-License-Identifier: MIT
/// \file
/// A whole model on a GPU, by the code that runs on the CPU: loss and gradients within rounding errors, in the order
/// of one stream and without a wait between kernels.
// compile: with --full, at most 300 kernels. A whole model of kernels that other sources test one by one.
#include <halftone/amp.hpp>
#include <halftone/cuda.cuh>

#include "nn/gpt_gradients.hpp"

namespace {

namespace ht = halftone;

template <class P, class T>
void within_what_rounding_does(float seed) {
    ht::cuda device;
    nn_test::within_what_rounding_does_on<P, T>(device, seed);
}

TEST_CASE("gpt on cuda: loss and every gradient within what rounding does") {
    SUBCASE("amp_bf16") { within_what_rounding_does<ht::amp_bf16, ht::bfloat16>(1); }
    SUBCASE("full_fp32") { within_what_rounding_does<ht::full_fp32, float>(1); }
    SUBCASE("amp_fp16") { within_what_rounding_does<ht::amp_fp16, ht::float16>(1024); }
}

}  // namespace
