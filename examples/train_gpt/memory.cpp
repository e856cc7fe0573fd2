// SPDX-License-Identifier: MIT
#include "memory.hpp"

#include <algorithm>
#include <cstdio>
#include <iostream>

#include <halftone/observe/memory/budget.hpp>

#include "cpu_runs.hpp"
#include "history.hpp"
#include "report.hpp"

namespace ht = halftone;

namespace {

/// The plan of a policy's run: the run's code on a device that computes nothing, for as many steps as the peak needs.
run_plan plan_of(const std::string& policy, const options& o, const ht::token_view& corpus, ht::cpu& device) {
    options few = o;
    few.steps = std::min<std::int64_t>(o.steps, 2);
    if (o.eval_every != 0 && o.eval_every <= o.steps) few.eval_every = few.steps;
    few.numerics_every = 0;
    few.shadow_step = few.planted_step = 0;
    few.planted_layer.clear();
    if (!o.plan) few.memory_history.clear();
    ht::trainer_callback silent;
    run_result result;
    auto memory = ht::plan(device, [&](ht::cpu& twin) {
        const surroundings around{.observer = silent, .listener = twin.listener(), .is_plan = true};
        result = with_history(twin.memory(), policy, few, around, [&](const surroundings& recorded) {
            return run_named(policy, twin, few, corpus, recorded);
        });
    });
    return {policy, result.parameters, std::move(memory)};
}

/// The multiplications of a token's forward pass through one block and through the head.
double block_work(const options& o) {
    const auto width = static_cast<double>(o.width);
    return 12 * width * width + width * static_cast<double>(o.context);
}
double head_work(const options& o) { return static_cast<double>(o.vocabulary) * static_cast<double>(o.width); }

/// A way to run within a budget, and its time relative to the requested run's.
struct way {
    options run;
    double cost = 1;
};

/// The fixed cost of a micro-batch: every product reads its weights and adds to their gradients once more, which
/// weighs as much as the work of so many tokens.
constexpr double tokens_of_a_micro_batch = 16;

std::vector<way> ways_of(const options& o) {
    const double forward = static_cast<double>(o.layers) * block_work(o) + head_work(o);
    const double tokens = static_cast<double>(o.batch * o.accumulation * o.context);
    const double as_asked = 3 * forward * (tokens + tokens_of_a_micro_batch * static_cast<double>(o.accumulation));
    std::vector<way> ways;
    for (std::int64_t batch = o.batch; batch >= 1; --batch) {
        if (o.batch % batch != 0) continue;
        for (std::int64_t blocks = 0; blocks <= o.layers; ++blocks) {
            for (const bool keeps_logits : {true, false}) {
                way w{o};
                w.run.batch = batch;
                w.run.accumulation = o.accumulation * (o.batch / batch);
                w.run.recomputed_blocks = blocks;
                w.run.keeps_logits = keeps_logits;
                const double again = static_cast<double>(blocks) * block_work(o) + (keeps_logits ? 0 : head_work(o));
                w.cost = ((3 * forward + again) * tokens +
                          3 * forward * tokens_of_a_micro_batch * static_cast<double>(w.run.accumulation)) / as_asked;
                ways.push_back(w);
            }
        }
    }
    return ways;
}

std::string in_words(const std::string& policy, const options& asked, const options& run, std::size_t peak, double cost) {
    std::string did;
    const auto add = [&did](const std::string& what) { did += (did.empty() ? "" : ", ") + what; };
    if (run.batch != asked.batch)
        add("micro-batches of " + std::to_string(run.batch) + " in place of " + std::to_string(asked.batch));
    if (run.recomputed_blocks != 0)
        add("the first " + std::to_string(run.recomputed_blocks) + " of " + std::to_string(run.layers) +
            " blocks computed again");
    if (!run.keeps_logits) add("logits computed again");
    char numbers[128];
    std::snprintf(numbers, sizeof numbers, "peak %.2f of %.2f MiB, %.1f%% more operations",
                  static_cast<double>(peak) / (1 << 20), static_cast<double>(asked.budget) / (1 << 20), 100 * (cost - 1));
    return policy + ": " + (did.empty() ? "fits as it is" : did) + ": " + numbers;
}

}  // namespace

int tell_plans(const options& o) {
    const training_text corpus = read_corpus(o);
    ht::cpu device{cpu_options_of(o)};
    std::vector<run_plan> plans;
    for (const std::string& policy : o.policies) plans.push_back(plan_of(policy, o, corpus.view(), device));
    print_plans(std::cout, plans);
    write_plans(o, plans);
    return 0;
}

budget_result within_budget(const std::string& policy, const options& o, const ht::token_view& corpus) {
    ht::cpu device{cpu_options_of(o)};
    const auto choice = ht::cheapest_within(static_cast<std::size_t>(o.budget), ways_of(o), [&](const way& w) {
        return plan_of(policy, w.run, corpus, device).memory;
    });
    const std::size_t peak = choice.plan.peak_bytes;
    if (!choice.fits) {
        throw exit_with(2, ht::detail::sentence(
                               "--budget: ", policy, " needs ", peak, " bytes with micro-batches of ", choice.way.run.batch,
                               ", ", choice.way.run.recomputed_blocks, " blocks and the logits computed again; ",
                               peak - static_cast<std::size_t>(o.budget), " more than the ", o.budget, " given"));
    }
    return {choice.way.run, peak, choice.way.cost - 1, in_words(policy, o, choice.way.run, peak, choice.way.cost)};
}
