// SPDX-License-Identifier: MIT
/// \file
/// A GPT whose parameters are divided among ranks, under other policies: fp16 whose first steps overflow, fp32, fp8 with
/// delayed scaling, gradients that travel in bf16, split masters, a number type of a user's own: all but the first with --full.
#include "ranks/shard_gpt.hpp"
#include "support/own_numbers.hpp"

namespace ranks_shard_gpt_policies_tests {

using namespace shard_gpt;

TEST_CASE("shard: fp16 whose first steps overflow") {
    const options o{.steps = 6, .clip = 0.5f, .init_scale = 0x1p24f};
    check_strategies<ht::amp_fp16>(2, o);
    const auto got = train<ht::amp_fp16>(2, {.stage = 3, .units = {"h.*"}, .steps = 6, .init_scale = 0x1p24f});
    const auto skipped = std::count(got[0].skips.begin(), got[0].skips.end(), 1);
    CHECK(skipped > 0);
    CHECK(skipped < 6);
    CHECK(got[0].skips == got[1].skips);
}

#if defined(HALFTONE_FULL_TESTS)

using delayed_fp8 = ht::with_scaling<ht::fp8_hybrid, ht::delayed_scaling<4>>;

TEST_CASE_TEMPLATE("shard: ZeRO 0 to 3 under other policies", P, ht::full_fp32, ht::fp8_hybrid, delayed_fp8,
                   ht::with_reduce<ht::with_split_master<ht::amp_bf16>, ht::bfloat16>, support::pure_e6m9) {
    for (const int ranks : {2, 3, 4}) {
        for (const int micro_batches : {1, 4}) {
            check_strategies<P>(ranks, {.micro_batches = micro_batches, .clip = 0.5f});
            check_strategies<P>(ranks, {.micro_batches = micro_batches, .eight_bit = true, .frozen = "embed"});
        }
    }
}

#endif

}  // namespace ranks_shard_gpt_policies_tests
