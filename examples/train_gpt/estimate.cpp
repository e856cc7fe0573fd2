// SPDX-License-Identifier: MIT
#include "estimate.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "cpu_runs.hpp"

namespace ht = halftone;

namespace {

/// Notes when each step ended.
struct watch final : ht::trainer_callback {
    using clock = std::chrono::steady_clock;
    std::vector<clock::time_point> ends;
    void on_step(const ht::trainer_state&) override { ends.push_back(clock::now()); }
};

/// The seconds of the run of a policy: of its steps, and of its evaluations, a third of the steps' work for each token.
double seconds_of(const std::string& policy, const options& o, const ht::token_view& corpus) {
    options few = o;
    few.steps = 3;
    few.eval_every = few.numerics_every = few.shadow_step = few.planted_step = 0;
    few.planted_layer.clear();
    few.watch = false;
    watch seen;
    ht::cpu device{cpu_options_of(o)};
    run_named(policy, device, few, corpus, {.observer = seen, .is_plan = true});
    const double step = std::chrono::duration<double>(seen.ends.back() - seen.ends.front()).count() / 2;
    const auto steps = static_cast<double>(o.steps), tokens = static_cast<double>(o.batch * o.accumulation);
    const double all_windows = 0.1 * static_cast<double>(corpus.size()) / static_cast<double>(o.context);
    const double windows = o.eval_windows == 0 ? all_windows : std::min(all_windows, static_cast<double>(o.eval_windows));
    const double evaluations = o.eval_every == 0 ? 1 : 1 + steps / static_cast<double>(o.eval_every);
    return steps * step + evaluations * windows / tokens * step / 3;
}

std::string time_text(double seconds) {
    const auto s = static_cast<long long>(seconds + 0.5);
    char text[40];
    if (s < 3600) std::snprintf(text, sizeof text, "%lld:%02lld", s / 60, s % 60);
    else std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    return text;
}

}  // namespace

std::string estimate_of(const std::vector<options>& each, const ht::token_view& corpus) {
    constexpr std::int64_t least_steps = 300;
    if (each.empty() || each.front().steps < least_steps || each.front().device != "cpu") return "";
    double all = 0;
    std::string parts;
    for (std::size_t i = 0; i < each.size(); ++i) {
        const std::string& policy = each[i].policies[i];
        const double seconds = seconds_of(policy, each[i], corpus);
        all += seconds;
        parts += (parts.empty() ? "" : ", ") + policy + " " + time_text(seconds);
    }
    return "about " + time_text(all) + (each.size() > 1 ? " in all: " + parts : "") + "\n";
}
