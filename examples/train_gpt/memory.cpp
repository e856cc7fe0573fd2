// SPDX-License-Identifier: MIT
#include "memory.hpp"

#include <algorithm>
#include <iostream>

#include "cpu_runs.hpp"
#include "gpu.hpp"
#include "planned.hpp"
#include "report.hpp"

namespace ht = halftone;

run_plan plan_of(const std::string& policy, const options& o, const ht::token_view& corpus) {
    const options few = without_reports(o);
    run_result result;
    if (o.device == "cuda") return plan_on_gpu(policy, few, corpus);
    ht::cpu device{cpu_options_of_rank(o)};
    auto memory = planned(device, policy, few, corpus, planned_for::plan, result);
    return {policy, result.parameters, std::move(memory)};
}

int tell_plans(const options& o) {
    const training_text corpus = read_corpus(o);
    std::vector<run_plan> plans;
    for (const std::string& policy : o.policies) plans.push_back(plan_of(policy, o, corpus.view()));
    if (o.ranks > 1) std::cout << "each of " << o.ranks << " ranks:\n";
    print_plans(std::cout, plans);
    write_plans(o, plans);
    return 0;
}

budget_result within_budget(const std::string& policy, const options& o, const ht::token_view& corpus) {
    options few = without_reports(o);
    few.memory_history.clear();
    try {
        run_result result;
        if (o.device == "cuda") {
            result = choose_on_gpu(policy, few, corpus);
        } else {
            ht::cpu device{cpu_options_of(o)};
            planned(device, policy, few, corpus, planned_for::budget, result);
        }
        options run = o;
        run.eval_batch = std::max<std::int64_t>(o.batch, 4096 / o.context);  // as planned
        run.batch = result.budget.micro_batch;
        run.accumulation = result.budget.accumulation;
        run.recomputed_blocks = result.budget.recomputed_blocks;
        run.keeps_logits = result.budget.keeps_logits;
        return {run, result.budget.peak_bytes, result.budget.more_operations, policy + ": " + result.budget.text};
    } catch (const ht::budget_error& e) {
        throw exit_with(2, "--budget: " + policy + ": " + e.what());
    }
}
