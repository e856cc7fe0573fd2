// SPDX-License-Identifier: MIT
/// \file
/// A model under fp32, split products, tf32 and bf16: loss and every gradient within rounding errors.
#include "nn/gpt_gradients.hpp"

namespace nn_gpt_gradients_tests {

namespace ht = halftone;
using nn_test::within_what_rounding_does;

TEST_CASE("gpt: loss and every gradient within the bounds of rounding") {
    SUBCASE("full_fp32") { within_what_rounding_does<ht::full_fp32, float>(1); }
    SUBCASE("split_fp32") { within_what_rounding_does<ht::split_fp32, float>(1); }
    SUBCASE("tf32") { within_what_rounding_does<ht::tf32, ht::tfloat32>(1); }
    SUBCASE("amp_bf16") { within_what_rounding_does<ht::amp_bf16, ht::bfloat16>(1); }
}

}  // namespace nn_gpt_gradients_tests
