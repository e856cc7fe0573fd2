// SPDX-License-Identifier: MIT
/// \file
/// The same as parallel_gpt.cpp under other policies: with --full, for they take long to compile.
#include "ranks/parallel_gpt.hpp"

#if defined(HALFTONE_FULL_TESTS)

namespace ranks_parallel_gpt_policies_tests {

namespace ht = halftone;

using delayed_fp8 = ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<4>>;

TEST_CASE_TEMPLATE("data_parallel: a GPT's gradients and bits under other policies", P, ht::full_fp32, ht::amp_bf16,
                   ht::fp8_hybrid) {
    for (const int ranks : {1, 2, 3, 4}) {
        for (const int accumulation : {1, 4}) parallel_gpt::check_gradients<P>(ranks, accumulation);
    }
}

TEST_CASE_TEMPLATE("data_parallel: runs have the same bits on all ranks under other policies", P, ht::full_fp32, ht::amp_bf16,
                   ht::amp_fp16, ht::fp8_hybrid, delayed_fp8, ht::with_reduce<ht::amp_bf16, ht::bfloat16>) {
    for (const int ranks : {1, 2, 3, 4}) {
        for (const int accumulation : {1, 2}) {
            for (const bool freezes : {false, true}) {
                const auto run = parallel_gpt::check_training<P>(
                    ranks, {.accumulation = accumulation, .init_scale = 0x1p30f, .freezes_embeddings = freezes, .steps = 12});
                CHECK((run.skipped > 0) == ht::model_needs_scaling<ht::nn::gpt<P>>);
            }
        }
    }
}

}  // namespace ranks_parallel_gpt_policies_tests

#endif
