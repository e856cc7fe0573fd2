// SPDX-License-Identifier: MIT
/// \file
/// A perceptron that ranks with an emulated GPU each train, whose bytes move at the last moment.
///
///     rank_gpu::check_strategies<ht::amp_fp16>(2, {.init_scale = 0x1p17f}, {1, 0, 0});         // ranks, options, skipped steps
#pragma once

#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <emulator/rank_gpu.hpp>

#include <halftone/amp.hpp>
#include <halftone/kernel/device.hpp>

#include "ranks/parallel_mlp.hpp"

namespace rank_gpu {

using rank_loop::options, rank_loop::seen;

inline const std::vector<std::string> each_block{"h.*"};
inline const ht::thread_options late{.delivery = ht::delivery::late};

template <class P, template <class> class Model = parallel_mlp::model>
std::vector<seen> train(int ranks, const options& o, const machine::options& how = {.works_later = true},
                        const ht::thread_options& threads = late) {
    return parallel_mlp::train<P, machine, Model>(ranks, o, how, threads);
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
        for (const arrival when : {arrival::last_moment, arrival::with_others}) {
            rank_loop::check_same(train<P>(ranks, o, {.works_later = true, .arrival = when}), plain);
        }
    }
}
}  // namespace rank_gpu
