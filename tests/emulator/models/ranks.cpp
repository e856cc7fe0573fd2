// SPDX-License-Identifier: MIT
/// \file
/// Several ranks with an emulated GPU each train together, whose bytes move at the last moment that waits allow, while the host runs
/// ahead of its GPU: all strategies have the same bits, one rank those of a program without ranks, and every wait is needed.
#include <chrono>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <emulator/rank_gpu.hpp>

#include <halftone/amp.hpp>
#include <halftone/kernel/device.hpp>

#include "dist/parallel_mlp.hpp"
#include "dist/whole_numbers.hpp"

namespace {

namespace ht = halftone;
using rank_gpu::harm, rank_gpu::machine;
using rank_loop::options, rank_loop::seen;

const std::vector<std::string> each_block{"h.*"};
const ht::thread_options late{.delivery = ht::delivery::late};

template <class P>
std::vector<seen> train(int ranks, const options& o, const machine::options& how = {.works_later = true}) {
    return parallel_mlp::train<P, machine>(ranks, o, how, late);
}

/// Steps of all strategies, against those of data_parallel whose host waits for its GPU in every launch.
template <class P>
void check_strategies(int ranks, options o, const std::vector<int>& skips) {
    CAPTURE(ranks);
    o.stage = -1;
    const auto plain = train<P>(ranks, o, {});
    for (const seen& each : plain) {
        CHECK(rank_loop::same_bits(each.logits, plain[0].logits));
        CHECK(each.skips == skips);
    }
    for (int stage = -1; stage <= 3; ++stage) {
        CAPTURE(stage);
        o.stage = stage;
        o.units = stage == 1 ? std::vector<std::string>{} : each_block;
        rank_loop::check_same(train<P>(ranks, o), plain);
    }
}
/// The same with and without an overflow in the first step, with two micro-batches.
template <class P>
void check_all_strategies(float init_scale, const std::vector<int>& skips) {
    for (const int ranks : {2, 3}) {
        check_strategies<P>(ranks, {.clip = 0.5f, .init_scale = init_scale, .bucket_bytes = 2048}, skips);
        check_strategies<P>(ranks, {.steps = 2, .micro_batches = 2, .clip = 0.5f, .layers = 2}, {0, 0});
    }
}

TEST_CASE("ranks on emulated GPUs: all strategies give a perceptron in fp16 the same bits, with an overflow in the first step") {
    check_strategies<ht::amp_fp16>(2, {.clip = 0.5f, .init_scale = 0x1p17f, .layers = 2, .bucket_bytes = 2048}, {1, 0, 0});
    check_strategies<ht::amp_fp16>(3, {.steps = 2, .micro_batches = 2, .clip = 0.5f, .layers = 1}, {0, 0});
}

TEST_CASE("ranks on emulated GPUs: one rank gives the bits of a program without ranks") {
    options o{.stage = -2, .steps = 2, .clip = 0.5f, .layers = 2};
    const auto alone = train<ht::amp_fp16>(1, o);
    for (int stage = -1; stage <= 3; ++stage) {
        CAPTURE(stage);
        o.stage = stage, o.units = stage > 0 ? each_block : std::vector<std::string>{};
        rank_loop::check_same(train<ht::amp_fp16>(1, o), alone);
    }
}

TEST_CASE("ranks on emulated GPUs: whole-number gradients give exactly one rank's parameters, with clipping") {
    const auto check = []<class P>(ht::types<P>, float clip) {
        for (const int ranks : {2, 3}) {
            whole_numbers::check<P, machine>(ranks, whole_numbers::adamw, clip, &whole_numbers::whole, {.works_later = true}, late);
        }
    };
    check(ht::types<ht::full_fp32>{}, 0);
    check(ht::types<ht::with_reduce<ht::amp_bf16, ht::bfloat16>>{}, 3);
}

/// The strategies whose waits are left out.
std::vector<options> all_waits(int layers, std::size_t bucket_bytes) {
    std::vector<options> all;
    for (int stage = -1; stage <= 3; ++stage)
        all.push_back({.stage = stage, .units = each_block, .steps = 2, .clip = 0.5f, .layers = layers, .bucket_bytes = bucket_bytes});
    return all;
}
/// The names of rank 0's collectives on the memory of GPUs.
std::vector<std::string> calls_of(const options& o) {
    std::vector<std::string> calls;
    train<ht::amp_fp16>(2, o, {.works_later = true, .damage = {.calls = &calls}});
    return calls;
}
/// Whether a rank sees anything else, or the run ends with an error.
bool is_noticed(const options& o, const rank_gpu::damage& d, const std::vector<seen>& want) {
    try {
        const auto got = train<ht::amp_fp16>(2, o, {.works_later = true, .damage = d});
        return !rank_loop::same(got[0], want[0]) || !rank_loop::same(got[1], want[1]);
    } catch (const ht::error&) {
        return true;
    }
}
/// Leaves out the wait for each collective in turn, those of parameters when a model is made included.
void check_waits(const std::vector<options>& strategies) {
    for (const options& o : strategies) {
        CAPTURE(o.stage);
        const auto want = train<ht::amp_fp16>(2, o);
        const std::vector<std::string> calls = calls_of(o);
        CHECK(calls.size() > 10);
        for (std::size_t i = 0; i < calls.size(); ++i) {
            const rank_gpu::damage d{.kind = harm::wait_left_out, .call = static_cast<long>(i)};
            CHECK_MESSAGE(is_noticed(o, d, want), "nobody needs the wait for collective ", i, " of ", calls.size(), ", ", calls[i]);
        }
    }
}

TEST_CASE("ranks on emulated GPUs: every wait for a collective that is left out is noticed") {
    check_waits(all_waits(2, std::size_t{25} << 20));
}

}  // namespace
