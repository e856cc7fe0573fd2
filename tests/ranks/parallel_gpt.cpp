// SPDX-License-Identifier: MIT
/// \file
/// Ranks that train a small GPT together: gradients against one rank's, and the same bits on all ranks through whole runs.
#include "ranks/parallel_gpt.hpp"

namespace ranks_parallel_gpt_tests {

namespace ht = halftone;

TEST_CASE("data_parallel: a GPT's gradients are one rank's, within the bounds of another order of additions") {
    for (const int ranks : {1, 2, 3, 4}) {
        parallel_gpt::check_gradients<ht::amp_fp16>(ranks, 1);
    }
    parallel_gpt::check_gradients<ht::amp_fp16>(3, 4);
}

TEST_CASE("data_parallel: a GPT in fp16 with overflows has the same bits on all ranks") {
    // Each backward pass overflows in fp16 until the scale has fallen from 2^30.
    const auto two = parallel_gpt::check_training<ht::amp_fp16>(2, {.init_scale = 0x1p30f, .steps = 12});
    CHECK(two.skipped > 0);
    CHECK(two.skipped < 12);
    const auto four = parallel_gpt::check_training<ht::amp_fp16>(
        4, {.accumulation = 2, .init_scale = 0x1p30f, .freezes_embeddings = true, .steps = 12});
    CHECK(four.skipped > 0);
    CHECK(four.skipped < 12);
}

}  // namespace ranks_parallel_gpt_tests
