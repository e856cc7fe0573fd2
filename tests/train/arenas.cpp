// SPDX-License-Identifier: MIT
/// \file
/// Arenas of all kinds in training: the same bits; slabs that are hardly larger than what is in use; random lengths for
/// ten thousand steps, after the first ones of which nothing is taken from the system.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/memory/arena_plans.hpp>
#include <halftone/observe/memory/plan.hpp>

#include "../../bench/support/activation_calls.hpp"
#include "support/random.hpp"
#include "train/small_gpt.hpp"

namespace train_arenas_tests {

namespace ht = halftone;
using ht::arena_kind;

constexpr arena_kind kinds[] = {arena_kind::segments, arena_kind::planned, arena_kind::growable, arena_kind::caching};

/// A run of a few steps, for any device.
template <class P>
auto run_of(const std::string& corpus, ht::extent accumulation, int checkpointing, std::int64_t eval_steps,
            std::vector<std::byte>* result = nullptr) {
    return [=, &corpus](auto& device) {
        ht::nn::gpt<P> model{device, small::config, 1};
        ht::language_data data{ht::token_view{corpus}, small::options};
        ht::trainer trainer{device, model,
                            {.per_device_train_batch_size = 2,
                             .gradient_accumulation_steps = accumulation,
                             .gradient_checkpointing = checkpointing != 0,
                             .max_steps = 6,
                             .learning_rate = 1e-3,
                             .eval_steps = eval_steps}};
        trainer.train(data);
        if (result != nullptr) *result = small::masters(model.parameters());
    };
}

TEST_CASE_TEMPLATE("arenas of all kinds: the same bits", P, ht::full_fp32, ht::amp_bf16) {
    const std::string corpus = small::text();
    for (const int checkpointing : {0, 1}) {
        std::vector<std::byte> first;
        std::size_t peak = 0;
        for (const arena_kind kind : kinds) {
            CAPTURE(ht::name(kind));
            ht::cpu device{{.threads = 2, .arenas = kind}};
            CHECK(device.memory().arenas() == kind);
            std::vector<std::byte> masters;
            run_of<P>(corpus, 2, checkpointing, 3, &masters)(device);
            if (first.empty()) first = masters, peak = device.memory().usage().peak();
            CHECK(masters == first);
            CHECK(device.memory().usage().peak() == peak);
            CHECK(device.memory().usage().live(ht::memory_kind::activation) == 0);
        }
    }
}

/// One step of a loop of the user's; `reason` is the arena's.
auto step_of(std::string& reason) {
    return [&reason](auto& device) {
        ht::nn::gpt<ht::amp_bf16> model{device, small::config, 1};
        ht::tape tape{device};
        ht::accumulator acc{model};
        ht::grad_scaler scaler{device};
        const std::vector<std::int32_t> ids(16);
        const ht::const_view<std::int32_t, 2> view{ids.data(), {2, 8}};
        {
            auto loss = model.loss(tape, ht::language_batch{view, view});
            tape.backward(scaler.scale(loss), acc);
        }
        reason = tape.memory().reason();
    };
}

TEST_CASE("planned arenas: what ht::plan has planned is followed from the first step on") {
    ht::cpu device{{.threads = 2, .arenas = arena_kind::planned}};
    std::string reason;
    const ht::memory_plan plan = ht::plan(device, step_of(reason));
    CHECK(reason.rfind("recorded: ", 0) == 0);
    CHECK(device.memory().plans().size() == 1);
    step_of(reason)(device);
    CAPTURE(reason);
    CHECK(reason.rfind("planned: ", 0) == 0);
    CHECK(device.memory().plans().size() == 1);
    CHECK(device.memory().usage().peak() == plan.peak_bytes);
}

TEST_CASE("planned arenas: the slab of a training run, accumulating or not") {
    const std::string corpus = small::text();
    for (const ht::extent accumulation : {1, 2, 4}) {
        for (const int checkpointing : {0, 1}) {
            ht::cpu device{{.threads = 2, .arenas = arena_kind::planned}};
            run_of<ht::amp_bf16>(corpus, accumulation, checkpointing, 0)(device);
            CHECK(device.memory().plans().size() == 1);
            // The first period was recorded, and needed more than the slab.
            const ht::memory_usage& usage = device.memory().usage();
            device.memory().usage().reset_peaks();
            run_of<ht::amp_bf16>(corpus, accumulation, checkpointing, 0)(device);
            CHECK(device.memory().plans().size() == 1);
            CHECK(static_cast<double>(usage.peak_held(ht::memory_kind::activation)) <=
                  1.03 * static_cast<double>(usage.peak(ht::memory_kind::activation)));
        }
    }
}

/// What a planned arena wastes: the slab's bytes over the largest sum of bytes in use.
template <class P>
void check_waste(ht::cpu& device, const ht::nn::gpt_config& config, ht::extent batch, ht::extent length, int checkpointing) {
    CAPTURE(config.layers);
    CAPTURE(config.width);
    CAPTURE(length);
    CAPTURE(checkpointing);
    const auto steps = calls::of_lengths<P>(device, config, batch, {length}, checkpointing);
    ht::planned_memory memory;
    memory.set_arenas(arena_kind::planned);
    ht::arena space(memory, ht::memory_kind::activation);
    calls::replayed on(space);
    for (int i = 0; i < 3; ++i) on.run(steps[0]);
    CHECK(space.peak() == calls::peak_of(steps[0]));
    CAPTURE(space.reason());
    CHECK(space.reason().rfind("planned: ", 0) == 0);
    CHECK(static_cast<double>(space.reserved()) <= 1.03 * static_cast<double>(space.peak()));
}

TEST_CASE_TEMPLATE("planned arenas: the slab of a GPT exceeds what is in use at one time by 3% at most", P, ht::full_fp32,
                   ht::amp_bf16, ht::amp_fp16) {
    ht::cpu device{{.threads = 2}};
    const ht::nn::gpt_config two{.vocabulary = 256, .context = 128, .layers = 2, .heads = 2, .width = 64},
        six{.vocabulary = 1000, .context = 256, .layers = 6, .heads = 6, .width = 192},
        gpt2{.vocabulary = 50304, .context = 1024, .layers = 12, .heads = 12, .width = 768};
    for (const int checkpointing : {0, 1, 2, 3}) {
        for (const ht::keep_logits logits : {ht::keep_logits::where_small, ht::keep_logits::never}) {
            for (ht::nn::gpt_config config : {two, six}) {
                config.logits = logits;
                check_waste<P>(device, config, 1, 33, checkpointing);
                check_waste<P>(device, config, 4, config.context, checkpointing);
            }
        }
        check_waste<P>(device, gpt2, 2, 1024, checkpointing);
    }
}

/// 10,000 steps of random lengths: the bytes that are reserved, and calls to the system, at the end, and behind the
/// warm-up.
struct reserved_bytes {
    std::size_t warm = 0, at_end = 0, peak_live = 0;
    std::uint64_t calls_warm = 0, calls_at_end = 0;
};
reserved_bytes of_random_lengths(arena_kind kind, const std::vector<calls::sequence>& steps) {
    ht::planned_memory memory;
    memory.set_arenas(kind);
    ht::arena space(memory, ht::memory_kind::activation);
    calls::replayed on(space);
    reserved_bytes r;
    // The warm-up, at the largest length. A planned arena records the first step of each length, whose blocks find places
    // one by one and may need more than the slab of all plans; its warm-up has one step of each.
    if (kind == arena_kind::planned)
        for (const calls::sequence& step : steps) on.run(step);
    for (int i = 0; i < 3; ++i) on.run(steps.back());
    r.warm = space.reserved();
    r.calls_warm = memory.usage().allocations();
    support::random data(11);
    for (int step = 0; step < 10'000; ++step) {
        on.run(steps[static_cast<std::size_t>(data.below(static_cast<int>(steps.size())))]);
        r.at_end = std::max(r.at_end, space.reserved());
    }
    r.peak_live = space.peak();
    r.calls_at_end = memory.usage().allocations();
    return r;
}

/// Of one row of 32 to 1,024 tokens.
void expect_nothing_behind_the_warm_up(const ht::nn::gpt_config& config) {
    ht::cpu device{{.threads = 2}};
    std::vector<ht::extent> lengths;
    for (ht::extent length = 32; length <= 1024; ++length) lengths.push_back(length);
    const auto steps = calls::of_lengths<ht::amp_bf16>(device, config, 1, lengths);
    for (const arena_kind kind : kinds) {
        CAPTURE(ht::name(kind));
        const reserved_bytes r = of_random_lengths(kind, steps);
        CAPTURE(r.warm);
        CAPTURE(r.peak_live);
        CHECK(r.at_end == r.warm);
        CHECK(r.calls_at_end == r.calls_warm);
        MESSAGE(std::string(ht::name(kind)), ": ", r.at_end, " bytes reserved, ", r.peak_live, " in use at one time");
    }
}

TEST_CASE(
    "arenas: after a warm-up at the largest length, or of planned ones at all, 10,000 steps of random lengths reserve "
    "nothing more") {
    // Its blocks are a caching arena's large ones at the largest length, and small ones at others.
    expect_nothing_behind_the_warm_up({.vocabulary = 256, .context = 1024, .layers = 4, .heads = 8, .width = 640});
}
TEST_CASE("arenas: the same of GPT-2 with 124 million parameters" * doctest::skip()) {
    expect_nothing_behind_the_warm_up({.vocabulary = 50304, .context = 1024, .layers = 12, .heads = 12, .width = 768});
}

}  // namespace train_arenas_tests
