// SPDX-License-Identifier: MIT
/// \file
/// A plan equals the memory of a run to the byte: by kind, by parameter, and at the peak.
#include <algorithm>
#include <sstream>

#include <doctest/doctest.h>

#include <halftone/observe/memory/history.hpp>
#include <halftone/observe/memory/plan.hpp>

#include "support/temporary_folder.hpp"
#include "train/small_gpt.hpp"

namespace train_plan_tests {

namespace ht = halftone;

struct setup {
    ht::extent batch = 4;
    ht::extent accumulation = 1;
    ht::extent length = small::config.context;
    int layers = 2;
    ht::keep_logits logits = ht::keep_logits::where_small;
    std::int64_t eval_steps = 0;
    int checkpointing = 0;
    std::vector<ht::parameter_group> groups{};
};

struct nothing {
    void operator()(auto&) const {}
};

/// A training run of `steps` steps, for any device; `prepare` is called with the trainer.
template <class P, class Prepare = nothing>
auto run_of(const setup& s, std::int64_t steps, const std::string& corpus, const Prepare& prepare = {}) {
    return [=, &corpus](auto& device) {
        ht::nn::gpt_config config = small::config;
        config.layers = s.layers;
        config.logits = s.logits;
        ht::nn::gpt<P> model{device, config, 1};
        ht::language_options options = small::options;
        options.context = s.length;
        ht::language_data data{ht::token_view{corpus}, options};
        ht::trainer trainer{device, model,
                            {.per_device_train_batch_size = s.batch,
                             .gradient_accumulation_steps = s.accumulation,
                             .gradient_checkpointing = s.checkpointing != 0,
                             .max_steps = steps,
                             .learning_rate = 1e-3,
                             .eval_steps = s.eval_steps,
                             .memory = {.checkpoint_every = std::max(1, s.checkpointing)}},
                            s.groups};
        prepare(trainer);
        trainer.train(data);
    };
}

template <class P>
void expect_plan_of(const setup& s) {
    const std::string corpus = small::text();
    ht::cpu device{{.threads = 2}};
    const ht::memory_plan plan = ht::plan(device, run_of<P>(s, 2, corpus));
    CHECK(device.memory().usage().peak() == 0);

    run_of<P>(s, 5, corpus)(device);
    const ht::memory_usage& usage = device.memory().usage();
    CHECK(plan.peak_bytes == usage.peak());
    std::size_t sum = 0;
    for (int k = 0; k < ht::memory_kinds; ++k) {
        const auto kind = static_cast<ht::memory_kind>(k);
        CAPTURE(ht::name(kind));
        CHECK(plan.peak_of(kind) == usage.peak(kind));
        CHECK(plan.at_peak(kind) <= plan.peak_of(kind));
        sum += plan.at_peak(kind);
        // Slabs consist of parameters. Freezing allocates new slabs before it releases the old ones.
        std::size_t of_parameters = 0;
        for (const ht::planned_parameter& p : plan.parameters) of_parameters += p.of(kind);
        if (kind == ht::memory_kind::master || kind == ht::memory_kind::copy || kind == ht::memory_kind::moment)
            CHECK((of_parameters == plan.peak_of(kind) || (kind == ht::memory_kind::master && !s.groups.empty())));
    }
    CHECK(sum == plan.peak_bytes);
    CHECK(!plan.operation.empty());
}

TEST_CASE_TEMPLATE("the plan of a training run equals the memory of the run", P, ht::full_fp32, ht::amp_fp16, ht::amp_bf16) {
    const setup setups[] = {{},
                            {.batch = 1},
                            {.batch = 3, .accumulation = 2, .length = 5},
                            {.accumulation = 4, .layers = 3, .logits = ht::keep_logits::never},
                            {.batch = 2, .logits = ht::keep_logits::always, .eval_steps = 2},
                            {.layers = 5, .checkpointing = 2},
                            {.checkpointing = 1, .groups = {{"embed", ht::frozen}}}};
    for (const setup& s : setups) {
        CAPTURE(s.batch);
        CAPTURE(s.accumulation);
        expect_plan_of<P>(s);
    }
}

TEST_CASE("the history of a training run equals the counters at each step, and its peak the plan's") {
    const std::string corpus = small::text();
    for (const setup& s : {setup{.eval_steps = 2}, setup{.accumulation = 2, .layers = 3, .checkpointing = 2}}) {
        ht::cpu device{{.threads = 2}};
        const ht::memory_plan plan = ht::plan(device, run_of<ht::amp_bf16>(s, 2, corpus));
        ht::memory_history history{device};
        struct : ht::trainer_callback {
            ht::memory_history* history = nullptr;
            ht::memory_usage* usage = nullptr;
            void on_step(const ht::trainer_state&) override {
                const ht::memory_snapshot now = history->snapshot();
                const auto live = now.live_at(now.events - 1);
                for (int k = 0; k < ht::memory_kinds; ++k)
                    CHECK(live[static_cast<std::size_t>(k)] == usage->live(static_cast<ht::memory_kind>(k)));
            }
        } each_step;
        each_step.history = &history;
        each_step.usage = &device.memory().usage();
        run_of<ht::amp_bf16>(s, 5, corpus, [&](auto& trainer) {
            trainer.listen(&history);
            trainer.add_callback(each_step);
        })(device);
        const ht::memory_snapshot all = history.snapshot();
        CHECK(all.dropped == 0);
        CHECK(all.peak_bytes == plan.peak_bytes);
        for (int k = 0; k < ht::memory_kinds; ++k)
            CHECK(all.bytes_at_peak[static_cast<std::size_t>(k)] == plan.at_peak(static_cast<ht::memory_kind>(k)));
        CHECK(all.steps.size() == 5);
        CHECK(all.outliving().empty());
        bool found = false;
        std::size_t of_parameters = 0;
        for (const ht::memory_allocation& a : all.allocations) {
            if (a.began == all.peak_event) found = a.operation == plan.operation && a.of_pass == plan.of_pass;
            if (a.kind == ht::memory_kind::master)
                for (const ht::memory_part& p : a.parts) of_parameters += p.bytes;
            // Only the gradient of the loss itself, with which a backward pass begins, belongs to no operation.
            CHECK((a.step == 0 || a.kind != ht::memory_kind::activation || *a.operation != 0 || a.bytes == 64));
            CHECK((a.ended > a.began || a.kind == ht::memory_kind::workspace));  // only the device's workspace is still in use
        }
        CHECK(found);
        CHECK(of_parameters == plan.peak_of(ht::memory_kind::master));
    }
}

TEST_CASE("a training run that runs out of memory writes its history; the next run has the bits of a new one") {
    const std::string corpus = small::text();
    struct : ht::trainer_callback {
        double loss = 0;
        void on_log(const ht::trainer_state& state) override { loss = state.loss; }
    } log;
    const auto last_loss = [&](ht::cpu& device) {
        run_of<ht::amp_bf16>({.batch = 2}, 3, corpus, [&](auto& trainer) { trainer.add_callback(log); })(device);
        return log.loss;
    };
    ht::cpu roomy{{.threads = 1}};
    const double expected = last_loss(roomy);
    const ht::memory_plan plan = ht::plan(roomy, run_of<ht::amp_bf16>({.batch = 2}, 2, corpus));
    // The planned memory suffices for 2 sequences, and not for 64.
    ht::cpu device{{.threads = 1, .memory_limit = plan.held_bytes}};
    const support::temporary_folder folder;
    const std::string file = (folder.path() / "memory.json").string();
    ht::memory_history history{device, {.out_of_memory = file}};
    CHECK_THROWS_AS(run_of<ht::amp_bf16>({.batch = 64}, 2, corpus, [&](auto& trainer) { trainer.listen(&history); })(device),
                    ht::out_of_memory);
    CHECK(support::temporary_folder::read(file).size() > 1000);
    const ht::memory_snapshot all = history.snapshot();
    REQUIRE(all.refused.size() == 1);
    CHECK(all.refused[0].step == 1);
    CHECK(*all.refused[0].operation != 0);
    CHECK(device.memory().usage().live() == device.memory().usage().live(ht::memory_kind::workspace));
    CHECK(last_loss(device) == expected);
}

TEST_CASE("a plan has the bytes of each layer, and the operation at the peak") {
    const std::string corpus = small::text();
    ht::cpu device{{.threads = 1}};
    const ht::memory_plan plan = ht::plan(device, run_of<ht::amp_bf16>({.batch = 128}, 2, corpus));
    const auto layers = plan.layers(2);
    const auto of = [&](const char* path) {
        for (const auto& l : layers) {
            if (l.path == path) return l;
        }
        FAIL("no layer " << path);
        return layers[0];
    };
    // Four matrices of 12 width x width elements, biases of 9 width and two norms; masters, gradients and moments of 4
    // bytes, copies of 2 bytes of all but the norms.
    const std::size_t w = 32, block = 12 * w * w + 9 * w + 4 * 64;
    CHECK(of("h.0").of(ht::memory_kind::moment) == 2 * of("h.0").of(ht::memory_kind::gradient));
    CHECK(of("h.0").of(ht::memory_kind::master) == of("h.1").of(ht::memory_kind::master));
    CHECK(of("h.0").of(ht::memory_kind::master) >= 4 * (12 * w * w + 9 * w));
    CHECK(of("h.0").of(ht::memory_kind::master) <= 4 * (block + 64 * 12));
    CHECK(of("h.0").of(ht::memory_kind::copy) < of("h.0").of(ht::memory_kind::master) / 2 + 1);
    CHECK(plan.at_peak(ht::memory_kind::activation) > plan.peak_bytes / 2);
    std::ostringstream text;
    plan.print(text);
    CHECK(text.str().find("peak: " + std::to_string(plan.peak_bytes) + " bytes, " + plan.operation) == 0);
    CHECK(text.str().find("h.1") != std::string::npos);
}

TEST_CASE("the plan of a large model needs no memory and little time") {
    ht::cpu device{{.threads = 2}};
    const std::string corpus(4096, 'a');
    const auto plan = ht::plan(device, [&](auto& d) {
        ht::nn::gpt<ht::amp_bf16> model{
            d, {.vocabulary = 50304, .context = 1024, .layers = 48, .heads = 25, .width = 1600}};  // GPT-2 XL
        ht::language_data data{ht::token_view{corpus}, {.context = 1024, .held_out = 0}};
        ht::trainer trainer{d, model, {.per_device_train_batch_size = 2, .max_steps = 2}};
        trainer.train(data);
    });
    CHECK(plan.peak_of(ht::memory_kind::master) > std::size_t{4} * 1'500'000'000);
    CHECK(plan.peak_bytes > std::size_t{18} * 1'500'000'000);
    CHECK(device.memory().usage().peak_held() == 0);
}

TEST_CASE("the largest micro-batch within a budget") {
    const std::string corpus = small::text();
    ht::cpu device{{.threads = 2}};
    const auto plan_of = [&](ht::extent batch) {
        return ht::plan(device, run_of<ht::full_fp32>({.batch = batch}, 2, corpus));
    };
    for (const ht::extent batch : {1, 2, 7, 8}) {
        const std::size_t budget = plan_of(batch).peak_bytes;
        CHECK(ht::largest_within(budget, 64, plan_of) == batch);
        CHECK(ht::largest_within(budget - 1, 64, plan_of) == batch - 1);
    }
    CHECK(ht::largest_within(std::size_t{1} << 40, 6, plan_of) == 6);
    CHECK_THROWS_AS(static_cast<void>(ht::largest_within(1, 0, plan_of)), ht::argument_error);
}

TEST_CASE("the cheapest way within a budget, and without one that with the lowest peak") {
    struct way {
        int cost;
        std::size_t peak;
    };
    const std::vector<way> ways{{3, 10}, {1, 30}, {2, 20}, {2, 15}};
    const auto plan_of = [](const way& w) {
        ht::memory_plan plan;
        plan.peak_bytes = w.peak;
        return plan;
    };
    const auto peak_within = [&](std::size_t budget) { return ht::cheapest_within(budget, ways, plan_of).way.peak; };
    CHECK(peak_within(30) == 30);
    CHECK(peak_within(29) == 20);
    CHECK(peak_within(14) == 10);
    CHECK_FALSE(ht::cheapest_within(9, ways, plan_of).fits);
    CHECK(peak_within(9) == 10);
    CHECK_THROWS_AS(static_cast<void>(ht::cheapest_within(9, std::vector<way>{}, plan_of)), ht::argument_error);
}

}  // namespace train_plan_tests
