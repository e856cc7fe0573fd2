// SPDX-License-Identifier: MIT
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>

#include <halftone/exec/cpu/cpu.hpp>

#include "before.hpp"
#include "device_runs.hpp"
#include "report.hpp"

namespace {

/// Notes when each step ended.
struct watch final : ht::trainer_callback {
    std::vector<std::chrono::steady_clock::time_point> ends;
    void on_step(const ht::trainer_state&) override { ends.push_back(std::chrono::steady_clock::now()); }
};

/// The seconds of a run: of its steps, and of its evaluations, a third of the steps' work for each token.
double seconds_of(const task& t) {
    task few = t;
    few.o.steps = 3;
    few.o.eval_every = few.o.numerics_every = few.o.shadow_step = 0;
    few.o.watch = false;
    watch seen;
    ht::cpu device{cpu_options_of(t.o)};
    run_on(device, few, {.observer = seen, .is_plan = true});
    const double step = std::chrono::duration<double>(seen.ends.back() - seen.ends.front()).count() / 2;
    const auto steps = static_cast<double>(t.o.steps), tokens = static_cast<double>(t.o.batch * t.o.accumulation);
    const double all = 0.1 * static_cast<double>(t.corpus.size()) / static_cast<double>(t.o.context);
    const double windows = t.o.eval_windows == 0 ? all : std::min(all, static_cast<double>(t.o.eval_windows));
    const double evaluations = t.o.eval_every == 0 ? 1 : 1 + steps / static_cast<double>(t.o.eval_every);
    return steps * step + evaluations * windows / tokens * step / 3;
}

std::string time_text(double seconds) {
    const auto s = static_cast<long long>(seconds + 0.5);
    char text[40];
    if (s < 3600)
        std::snprintf(text, sizeof text, "%lld:%02lld", s / 60, s % 60);
    else
        std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    return text;
}

}  // namespace

int tell_plans(const options& o) {
    const training_text corpus = read_corpus(o);
    std::vector<run_result> plans;
    for (const std::string& policy : o.policies) plans.push_back(planned({policy, o, corpus.view()}));
    if (o.ranks > 1) std::cout << "each of " << o.ranks << " ranks:\n";
    print_plans(std::cout, plans);
    write_plans(o, plans);
    return 0;
}

std::vector<ht::memory_choice> fit_to_budget(std::vector<task>& tasks) {
    std::vector<ht::memory_choice> choices;
    for (task& t : tasks) {
        if (t.o.budget == 0) continue;
        try {
            const ht::memory_choice& c = choices.emplace_back(planned(t, true).budget);
            t.o.eval_batch = std::max<std::int64_t>(t.o.batch, 4096 / t.o.context);  // as planned
            t.o.batch = c.micro_batch, t.o.accumulation = c.accumulation;
            t.o.recomputed_blocks = c.recomputed_blocks, t.o.keeps_logits = c.keeps_logits;
            std::cout << t.policy << ": " << c.text << '\n';
        } catch (const ht::budget_error& e) {
            refuse("--budget: ", t.policy, ": ", e.what());
        }
    }
    return choices;
}

std::string estimate_of(const std::vector<task>& tasks) {
    const options& o = tasks.front().o;
    if (!o.estimate || o.steps < 300 || o.device != "cpu" || o.ranks > 1) return "";
    double all = 0;
    std::string parts;
    for (const task& t : tasks) {
        const double seconds = seconds_of(t);
        all += seconds;
        parts += (parts.empty() ? "" : ", ") + t.policy + " " + time_text(seconds);
    }
    return "about " + time_text(all) + (tasks.size() > 1 ? " in all: " + parts : "") + "\n";
}
