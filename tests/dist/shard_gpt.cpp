// SPDX-License-Identifier: MIT
/// \file
/// A GPT whose parameters are divided among ranks: all strategies give the bits of data parallel training, with
/// accumulation, clipping, checkpoints, frozen embeddings and 8-bit moments.
#include "dist/shard_gpt.hpp"

namespace {

using namespace shard_gpt;

TEST_CASE("shard: ZeRO 0 to 3 give a GPT the bits of data parallel training") {
    check_strategies<ht::amp_bf16>(2, {.clip = 0.5f});
    check_strategies<ht::amp_bf16>(4, {.micro_batches = 2, .clip = 0.5f, .checkpointing = 2});
}

TEST_CASE("shard: 3 ranks, 8-bit moments, frozen embeddings") {
    check_strategies<ht::amp_bf16>(3, {.eight_bit = true});
    check_strategies<ht::amp_bf16>(2, {.eight_bit = true, .frozen = "embed"});
}

TEST_CASE("shard: collectives that deliver late change nothing") {
    options o{.stage = 3, .units = {"h.*"}, .clip = 0.5f, .checkpointing = 2};
    const auto prompt = train<ht::amp_bf16>(4, o);
    for (const ht::delivery d : {ht::delivery::late, ht::delivery::halves, ht::delivery::shuffled}) {
        o.delivery = d;
        const auto late = train<ht::amp_bf16>(4, o);
        for (std::size_t r = 0; r < late.size(); ++r) CHECK(same_bits(late[r].logits, prompt[r].logits));
    }
}

TEST_CASE("shard: one rank gives the bits of a program without ranks") {
    for (int stage = 0; stage <= 3; ++stage) {
        CAPTURE(stage);
        options o{.stage = -1};
        const auto alone = train<ht::amp_bf16>(1, o);
        o.stage = stage, o.units = {"h.*"};
        const auto got = train<ht::amp_bf16>(1, o);
        CHECK(same_bits(got[0].losses, alone[0].losses));
        CHECK(same_bits(got[0].logits, alone[0].logits));
    }
}

}  // namespace
