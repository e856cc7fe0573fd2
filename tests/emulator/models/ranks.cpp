// SPDX-License-Identifier: MIT
/// \file
/// Several ranks with an emulated GPU each train together, whose bytes move at the last moment that waits allow, while the host runs
/// ahead of its GPU: all strategies have the same bits, one rank those of a program without ranks, and every wait is needed.
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <emulator/rank_mlp.hpp>

#include "ranks/whole_numbers.hpp"

namespace emulator_models_ranks_tests {

namespace ht = halftone;
using namespace rank_gpu;
using fp16 = ht::amp_fp16;

TEST_CASE(
    "ranks on emulated GPUs: all strategies give a perceptron in fp16 the same bits, with an overflow in the first "
    "step") {
    check_strategies<fp16>(2, {.clip = 0.5f, .init_scale = 0x1p17f, .layers = 2, .bucket_bytes = 2048}, {1, 0, 0});
    check_strategies<fp16>(3, {.steps = 2, .micro_batches = 2, .clip = 0.5f, .layers = 1}, {0, 0});
}

TEST_CASE("ranks on emulated GPUs: one rank gives the bits of a program without ranks") {
    options o{.stage = -2, .steps = 2, .clip = 0.5f, .layers = 2};
    const auto alone = train<fp16>(1, o);
    for (int stage = -1; stage <= 3; ++stage) {
        CAPTURE(stage);
        o.stage = stage, o.units = stage > 0 ? each_block : std::vector<std::string>{};
        rank_loop::check_same(train<fp16>(1, o), alone);
    }
}

TEST_CASE("ranks on emulated GPUs: a window that is discarded while its gradients travel leaves no trace") {
    for (const int layers : {1, 2}) {
        for (int stage = -1; stage <= 3; ++stage) {
            CAPTURE(stage);
            options o{.stage = stage, .units = each_block, .steps = 2, .layers = layers, .bucket_bytes = 2048};
            const auto want = train<fp16>(2, o);
            o.discards = true;
            for (const arrival when : {arrival::last_moment, arrival::with_others})
                rank_loop::check_same(train<fp16>(2, o, {.works_later = true, .arrival = when}), want);
        }
    }
}

TEST_CASE("ranks on emulated GPUs: whole-number gradients give exactly one rank's parameters, with clipping") {
    const auto check = []<class P>(ht::types<P>, float clip) {
        for (const int ranks : {2, 3}) {
            for (const arrival when : {arrival::last_moment, arrival::with_others})
                whole_numbers::check<P, machine>(ranks, whole_numbers::adamw, clip, &whole_numbers::whole,
                                                 {.works_later = true, .arrival = when}, late);
        }
    };
    check(ht::types<ht::full_fp32>{}, 0);
    check(ht::types<ht::with_reduce<ht::amp_bf16, ht::bfloat16>>{}, 3);
}

/// The strategies whose waits are left out.
std::vector<options> all_waits(int layers, std::size_t bucket_bytes = options{}.bucket_bytes) {
    std::vector<options> all;
    for (int stage = -1; stage <= 3; ++stage)
        all.push_back({.stage = stage,
                       .units = each_block,
                       .steps = 2,
                       .clip = 0.5f,
                       .layers = layers,
                       .bucket_bytes = bucket_bytes});
    return all;
}
/// The names of rank 0's collectives on the memory of GPUs.
template <template <class> class Model>
std::vector<std::string> calls_of(const options& o) {
    std::vector<std::string> calls;
    train<fp16, Model>(2, o, {.works_later = true, .damage = {.calls = &calls}});
    return calls;
}
/// Whether a rank sees anything else, or the run ends with an error.
template <template <class> class Model>
bool is_noticed(const options& o, const damage& d, const std::vector<seen>& want) {
    try {
        const auto got = train<fp16, Model>(2, o, {.works_later = true, .damage = d});
        return !rank_loop::same(got[0], want[0]) || !rank_loop::same(got[1], want[1]);
    } catch (const ht::error&) {
        return true;
    }
}
/// Leaves out the wait for each collective in turn, those of parameters when a model is made included. All but `unread` of them are
/// to be noticed.
template <template <class> class Model = parallel_mlp::model>
void check_waits(const std::vector<options>& strategies, std::size_t unread = 0) {
    for (const options& o : strategies) {
        CAPTURE(o.stage);
        std::vector<std::string> unnoticed;
        const auto want = train<fp16, Model>(2, o);
        const std::vector<std::string> calls = calls_of<Model>(o);
        CHECK(calls.size() > 4);
        for (std::size_t i = 0; i < calls.size(); ++i) {
            const damage d{.kind = harm::wait_left_out, .call = static_cast<long>(i)};
            if (!is_noticed<Model>(o, d, want)) unnoticed.push_back(std::to_string(i) + ' ' + calls[i]);
        }
        CAPTURE(unnoticed);
        CHECK(unnoticed.size() == unread);
    }
}

TEST_CASE("ranks on emulated GPUs: every wait for a collective that is left out is noticed") {
    check_waits(all_waits(2));
}
/// Begins each collective before the work that the GPU has been given, which may write what it sends, or read what it overwrites. All
/// but the first three, of parameters that are there when a model is made, are to be noticed.
void check_order(const std::vector<options>& strategies) {
    for (const options& o : strategies) {
        CAPTURE(o.stage);
        const auto want = train<fp16>(2, o);
        const std::vector<std::string> calls = calls_of<parallel_mlp::model>(o);
        for (std::size_t i = 3; i < calls.size(); ++i) {
            const damage d{.kind = harm::begins_too_early, .call = static_cast<long>(i)};
            CHECK_MESSAGE(is_noticed<parallel_mlp::model>(o, d, want), "nobody needs the order of collective ", i,
                          " of ", calls.size(), ", ", calls[i]);
        }
    }
}

TEST_CASE("ranks on emulated GPUs: a collective that does not wait for the GPU's work before it is noticed") {
    const auto all = all_waits(2);
    check_order({all[0], all[2]});  // data_parallel and zero1
}
TEST_CASE("ranks on emulated GPUs: more waits, and more collectives that do not wait" * doctest::skip()) {
    const auto all = all_waits(2), small = all_waits(3, 2048);
    check_order({all[1], all[3], small[0]});
    check_waits({small[0], small[1], small[2], small[3]});
    const options o = all_waits(3)[4];
    // In each step the backward pass gathers what it does not read: the first block's biases, and its norm's gain, which only
    // the gradient of its input would need.
    check_waits({o}, 2);
    // With zero3, whose gathers mostly follow when nothing is under way: one of each unit.
    const auto want = train<fp16>(2, o);
    const std::vector<std::string> calls = calls_of<parallel_mlp::model>(o);
    std::set<std::string> noticed;
    for (std::size_t i = 3; i < calls.size(); ++i) {
        if (is_noticed<parallel_mlp::model>(o, {.kind = harm::begins_too_early, .call = static_cast<long>(i)}, want))
            noticed.insert(calls[i]);
    }
    for (const char* unit : {"h.0", "h.1", "h.2", "the rest"}) CHECK(noticed.count(unit) == 1);
}

TEST_CASE("ranks on emulated GPUs: running statistics are rank 0's, and what is left out is noticed") {
    for (const options& o : {options{.stage = -1, .steps = 2}, options{.stage = 2, .steps = 2}}) {
        const auto got = train<fp16, parallel_mlp::normalised>(2, o);
        CHECK(got[0].losses != got[1].losses);  // of other rows
        CHECK(rank_loop::same_bits(got[0].logits, got[1].logits));
        check_waits<parallel_mlp::normalised>({o});
    }
}

TEST_CASE("ranks on emulated GPUs: a rank that leaves out a collective is named, and none hangs") {
    using clock = std::chrono::steady_clock;
    for (const int stage : {-1, 3}) {
        const options o{.stage = stage, .units = each_block, .steps = 1, .layers = 2};
        const std::vector<std::string> calls = calls_of<parallel_mlp::model>(o);
        for (std::size_t i = 0; i < calls.size(); i += 3) {
            CAPTURE(calls[i]);
            const damage d{.kind = harm::left_out, .call = static_cast<long>(i), .rank = 1};
            const ht::thread_options soon{.deadline = std::chrono::seconds(2), .delivery = ht::delivery::late};
            const clock::time_point begin = clock::now();
            std::string why;
            try {
                train<fp16>(2, o, {.works_later = true, .damage = d}, soon);
            } catch (const ht::communication_error& e) {
                why = e.what();
            }
            CHECK_MESSAGE(why.find("rank 1") != std::string::npos, why);
            CHECK(clock::now() - begin < std::chrono::seconds(60));
        }
    }
}

}  // namespace emulator_models_ranks_tests
