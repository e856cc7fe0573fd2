// SPDX-License-Identifier: MIT
/// \file
/// Ranks with an emulated GPU each train a small GPT: all strategies have the same bits, in every precision, with an overflow in the first
/// step, accumulation and clipping, and one rank those of a program without ranks.
#include <vector>

#include <doctest/doctest.h>
#include <emulator/rank_gpu.hpp>

#include <halftone/kernel/device.hpp>

#include "ranks/shard_gpt.hpp"

namespace emulator_models_ranks_gpt_tests {

namespace ht = halftone;
using rank_gpu::machine;
using rank_loop::options, rank_loop::seen;

template <class P>
std::vector<seen> train(int ranks, const options& o, const machine::options& how) {
    return shard_gpt::train<P, machine>(
        ranks, o, [](auto&&...) {}, how);
}

template <class P>
void check_strategies(int ranks, options o, const std::vector<int>& skips) {
    CAPTURE(ranks);
    o.delivery = ht::delivery::late;
    o.stage = ranks == 1 ? -2 : -1;
    const auto plain = train<P>(ranks, o, {});
    for (const seen& each : plain) {
        CHECK(rank_loop::same_bits(each.logits, plain[0].logits));
        CHECK(each.skips == skips);
    }
    for (int stage = -1; stage <= 3; ++stage) {
        CAPTURE(stage);
        o.stage = stage;
        o.units = stage == 1 ? std::vector<std::string>{} : std::vector<std::string>{"h.*"};
        const auto when = stage % 2 == 0 ? rank_gpu::arrival::with_others : rank_gpu::arrival::last_moment;
        rank_loop::check_same(train<P>(ranks, o, {.works_later = true, .arrival = when}), plain);
    }
}
template <class P>
void check_all(float init_scale, const std::vector<int>& skips) {
    check_strategies<P>(1, {.steps = 2, .layers = 1}, {0, 0});
    check_strategies<P>(2, {.steps = 2, .clip = 0.5f, .init_scale = init_scale, .layers = 2}, skips);
    check_strategies<P>(3, {.steps = 2, .micro_batches = 2, .clip = 0.5f, .layers = 1}, {0, 0});
}

TEST_CASE("ranks on emulated GPUs: all strategies give a GPT in fp16 the same bits") {
    check_all<ht::amp_fp16>(0x1p21f, {1, 0});
}
TEST_CASE("ranks on emulated GPUs: all strategies give a GPT in fp32 the same bits" * doctest::skip()) {
    check_all<ht::full_fp32>(1024, {0, 0});
}
TEST_CASE("ranks on emulated GPUs: all strategies give a GPT in bf16 the same bits" * doctest::skip()) {
    check_all<ht::amp_bf16>(1024, {0, 0});
}

}  // namespace emulator_models_ranks_gpt_tests
