// SPDX-License-Identifier: MIT
/// \file
/// Ranks with an emulated GPU each, in other precisions: all strategies have the same bits.
#include <emulator/rank_mlp.hpp>

namespace emulator_models_ranks_policies_tests {

namespace ht = halftone;
using rank_gpu::check_strategies;

/// Two ranks and three, one micro-batch and two.
template <class P>
void check_all(float init_scale, const std::vector<int>& skips) {
    for (const int ranks : {2, 3}) {
        check_strategies<P>(ranks, {.clip = 0.5f, .init_scale = init_scale, .bucket_bytes = 2048}, skips);
        check_strategies<P>(ranks, {.steps = 2, .micro_batches = 2, .clip = 0.5f, .layers = 2}, {0, 0});
    }
}

TEST_CASE(
    "ranks on emulated GPUs: all strategies give the same bits in fp32, and in bf16, whose gradients travel in bf16") {
    check_all<ht::full_fp32>(1024, {0, 0, 0});
    check_all<ht::amp_bf16>(1024, {0, 0, 0});
    check_all<ht::with_reduce<ht::amp_bf16, ht::bfloat16>>(1024, {0, 0, 0});
}

TEST_CASE("ranks on emulated GPUs: all strategies give the same bits in fp16, and in eight bits with delayed scaling") {
    check_all<ht::amp_fp16>(1024, {0, 0, 0});
    check_all<ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<2>>>(1024, {0, 0, 0});
}

}  // namespace emulator_models_ranks_policies_tests
