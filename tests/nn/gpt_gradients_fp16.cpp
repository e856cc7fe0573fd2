// SPDX-License-Identifier: MIT
/// \file
/// A model under fp16, with a loss scale, and under recipes: loss and every gradient within rounding errors.
#include "nn/gpt_gradients.hpp"

namespace nn_gpt_gradients_fp16_tests {

namespace ht = halftone;
using nn_test::within_what_rounding_does;

TEST_CASE("gpt: loss and every gradient within the bounds of rounding, further policies") {
    SUBCASE("amp_fp16") { within_what_rounding_does<ht::amp_fp16, ht::float16>(1024); }
    SUBCASE("a recipe: norms in fp32, logits in fp32, the perceptrons' first layers in fp16") {
        using recipe = ht::recipe<ht::amp_bf16, ht::rule<"*.norm", ht::full_fp32>,
                                  ht::rule<"head", ht::with_output<ht::amp_bf16, float>>,
                                  ht::rule<"h.*.mlp.up", ht::amp_fp16>, ht::rule<"h.last.attn.qkv", ht::full_fp32>>;
        within_what_rounding_does<recipe, ht::bfloat16>(1);
    }
    SUBCASE("a recipe: whole blocks and branches in fp32, on a bf16 stream") {
        using narrow = ht::with_stream<ht::amp_bf16, ht::bfloat16>;
        using recipe = ht::recipe<narrow, ht::rule<"h.0.attn", ht::full_fp32>, ht::rule<"h.last", ht::full_fp32>>;
        within_what_rounding_does<recipe, ht::bfloat16>(1);
    }
    SUBCASE("a bf16 stream") {
        within_what_rounding_does<ht::with_stream<ht::amp_bf16, ht::bfloat16>, ht::bfloat16>(1);
    }
}

}  // namespace nn_gpt_gradients_fp16_tests
