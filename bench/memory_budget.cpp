// SPDX-License-Identifier: MIT
/// \file
/// What less memory costs in seconds: checkpoints of every block of a GPT, and budgets between its least and its greatest peak,
/// each compared with the fastest of those that fit among the ways that compute the first n blocks again, n from 0 to all. Steps take
/// turns, in an order that rotates; times are medians.
///
///     bench_memory_budget --json memory_budget.json                 // 12 blocks
///     bench_memory_budget --resident                                // resident memory of the process, compared with the plan
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <halftone/amp.hpp>
#include <halftone/data/batches.hpp>
#include <halftone/train/trainer.hpp>

#include <support/program.hpp>

namespace {

namespace ht = halftone;
using gpt = ht::nn::gpt<ht::amp_bf16>;

struct settings : bench::options {
    int layers = 12, budgets = 10;
    ht::extent width = 256, heads = 4, context = 128, batch = 8;
    bool resident = false;

    ht::nn::gpt_config config() const {
        return {.vocabulary = 256, .context = context, .layers = layers, .heads = heads, .width = width};
    }
    std::string shape() const {
        return std::to_string(layers) + "x" + std::to_string(width) + " B=" + std::to_string(batch) + " T=" + std::to_string(context);
    }
};

/// One model whose steps are taken in any way.
class steps {
  public:
    steps(ht::cpu& device, const settings& o) : device_(device), o_(o), corpus_(1 << 16, ' ') {
        for (std::size_t i = 0; i < corpus_.size(); ++i) corpus_[i] = static_cast<char>((i * i + i / 7) % 251);
    }
    /// Milliseconds of a step.
    double run(const ht::memory_choice& way) {
        model_.checkpoint_where([&](int block) { return block < way.recomputed_blocks; });
        model_.store_logits(way.keeps_logits ? ht::keep_logits::where_small : ht::keep_logits::never);
        const auto begin = std::chrono::steady_clock::now();
        const auto batch = data_.sample(0, o_.batch);
        for (const auto& micro : batch.split(way.accumulation))
            tape_.backward(model_.loss(tape_, micro) / static_cast<float>(way.accumulation), acc_);
        auto gradients = acc_.take();
        ht::clip_grad_norm(device_, gradients, 1.0f);
        optimizer_.step(gradients);
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    }
    gpt& model() { return model_; }
    ht::language_data& data() { return data_; }
    std::size_t activations(const ht::memory_choice& way) {
        device_.memory().usage().reset_peaks();
        run(way);
        return device_.memory().usage().peak(ht::memory_kind::activation);
    }

  private:
    ht::cpu& device_;
    const settings& o_;
    std::string corpus_;
    ht::language_data data_{ht::token_view{corpus_}, {.context = o_.context}};
    gpt model_{device_, o_.config(), 1};
    ht::adamw<ht::cpu, gpt> optimizer_{device_, model_, {.lr = 1e-4}};
    ht::accumulator<ht::unscaled_t, ht::types<gpt>> acc_{model_, ht::unscaled};
    ht::tape<ht::cpu> tape_{device_};
};

/// The median milliseconds of each way, taken in turns.
std::vector<double> medians(steps& run, const std::vector<ht::memory_choice>& ways, int rounds) {
    std::vector<std::vector<double>> all(ways.size());
    for (const auto& way : ways) run.run(way);  // memory, caches
    for (int round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < ways.size(); ++i) {
            const std::size_t which = (i + static_cast<std::size_t>(round)) % ways.size();
            all[which].push_back(run.run(ways[which]));
        }
    }
    std::vector<double> result;
    for (auto& each : all) {
        std::sort(each.begin(), each.end());
        result.push_back(each[each.size() / 2]);
    }
    return result;
}

/// A row of the report begins with the case's name.
bench::json row_of(const bench::case_name& name) { return {{"kernel", name.kernel}, {"shape", name.shape}, {"policy", name.policy}}; }

void tell_checkpoints(steps& run, const settings& o, bench::report& report) {
    const bench::case_name name{"checkpoints", o.shape(), "amp_bf16"};
    if (!report.wants(name)) return;
    ht::memory_choice none, all;
    all.recomputed_blocks = o.layers;
    const std::size_t without = run.activations(none), with = run.activations(all);
    std::vector<double> ratios;
    for (int round = 0; round < 4 * o.rounds; ++round) {  // neighbours in time
        const double a = run.run(none), b = run.run(all);
        ratios.push_back(b / a);
    }
    std::sort(ratios.begin(), ratios.end());
    const double times = ratios[ratios.size() / 2];
    std::printf("checkpoints of all %d blocks: activations %.2f MiB of %.2f (%.3f), %.3f times the step time (%.3f to %.3f)\n",
                o.layers, static_cast<double>(with) / (1 << 20), static_cast<double>(without) / (1 << 20),
                static_cast<double>(with) / static_cast<double>(without), times, ratios.front(), ratios.back());
    bench::json row = row_of(name);
    row["activation_bytes"] = without;
    row["activation_bytes_checkpointed"] = with;
    row["times_step_time"] = times;
    report.add_row(std::move(row));
}

void tell_budgets(ht::cpu& device, steps& run, const settings& o, bench::report& report) {
    const bench::case_name name{"budget", o.shape(), "amp_bf16"};
    if (!report.wants(name)) return;
    ht::training_arguments arguments{.per_device_train_batch_size = o.batch, .max_steps = 2};
    const std::vector<ht::parameter_group> groups;
    const auto asked = ht::detail::asked_by(arguments);
    const ht::detail::planned_run<ht::cpu, gpt, ht::plain_tape, ht::language_data> plans{
        device, run.model(), arguments, asked, groups, run.data()};
    // Each number of blocks at the whole micro-batch; all other ways without blocks.
    std::vector<ht::memory_choice> ways;
    const ht::detail::budget_question q = plans.question();
    for (ht::memory_choice way : ht::detail::ways_without_blocks(q)) {
        for (int blocks = 0; blocks <= o.layers; blocks += way.accumulation == 1 && way.keeps_logits ? 1 : o.layers / 2) {
            way.recomputed_blocks = blocks;
            way.peak_bytes = plans.plan(way).peak_bytes;
            ways.push_back(way);
        }
    }
    const std::vector<double> times = medians(run, ways, o.rounds);
    std::size_t least = ways[0].peak_bytes, most = least;
    for (const auto& way : ways) {
        if (way.accumulation != 1 || !way.keeps_logits) continue;
        least = std::min(least, way.peak_bytes), most = std::max(most, way.peak_bytes);
    }
    for (int i = 0; i < o.budgets; ++i) {
        const std::size_t budget = least + (most - least) * static_cast<std::size_t>(i) / static_cast<std::size_t>(o.budgets - 1);
        bench::json row = row_of(name);
        row["budget_bytes"] = budget;
        for (const bool all : {false, true}) {
            ht::detail::budget_question asked = q;
            if (!all) asked.may = {.micro_batches = false, .logits = false};
            const auto chosen = ht::detail::cheapest_measures(asked, [&](const ht::memory_choice& w) {
                const std::size_t peak = plans.plan(w).peak_bytes;
                return ht::detail::budget_plan{peak <= budget, peak};
            }).way;
            double own = 0, best = 1e9;
            for (std::size_t k = 0; k < ways.size(); ++k) {
                const auto& w = ways[k];
                if (w.micro_batch == chosen.micro_batch && w.keeps_logits == chosen.keeps_logits &&
                    w.recomputed_blocks == chosen.recomputed_blocks)
                    own = times[k];
                if (w.peak_bytes <= budget && w.accumulation == 1 && w.keeps_logits) best = std::min(best, times[k]);
            }
            if (own == 0) own = medians(run, {chosen}, o.rounds)[0];
            std::printf("budget %.2f MiB, %s: %s: %.1f ms, %.3f of the best set of blocks\n", static_cast<double>(budget) / (1 << 20),
                        all ? "all measures" : "blocks alone", ht::detail::budget_words(asked, chosen).c_str(), own, own / best);
            row[all ? "all_measures" : "blocks_alone"] = {{"recomputed_blocks", chosen.recomputed_blocks},
                                                          {"micro_batch", chosen.micro_batch},
                                                          {"keeps_logits", chosen.keeps_logits},
                                                          {"peak_bytes", chosen.peak_bytes},
                                                          {"ms", own},
                                                          {"times_best_set_of_blocks", own / best}};
        }
        report.add_row(std::move(row));
    }
}

/// A field of /proc/self/status in bytes; 0 where there is none.
std::size_t status_of(const std::string& field) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind(field + ":", 0) == 0) return std::stoull(line.substr(field.size() + 1)) * 1024;
    }
    return 0;
}

/// Throws if the process has not within 5% of the plan.
void tell_resident(ht::cpu& device, const settings& o, bench::report& report) {
    const auto training = [&](auto& on) {
        gpt model{on, o.config(), 1};
        static const std::string corpus(1 << 16, 'a');
        ht::language_data data{ht::token_view{corpus}, {.context = o.context}};
        ht::trainer trainer{on, model, {.per_device_train_batch_size = o.batch, .max_steps = 2}};
        trainer.train(data);
    };
    const ht::memory_plan plan = ht::plan(device, training);
    training(device);
    const std::size_t resident = status_of("VmHWM");
    const double ratio = static_cast<double>(resident) / static_cast<double>(plan.peak_bytes);
    std::printf("planned peak %.1f MiB, resident at most %.1f MiB: %.3f times the plan\n",
                static_cast<double>(plan.peak_bytes) / (1 << 20), static_cast<double>(resident) / (1 << 20), ratio);
    bench::json row = row_of({"resident", o.shape(), "amp_bf16"});
    row["planned_bytes"] = plan.peak_bytes;
    row["resident_bytes"] = resident;
    report.add_row(std::move(row));
    if (ratio <= 0.95 || ratio >= 1.05) throw std::runtime_error("the resident memory is not within 5% of the plan");
}

}  // namespace

int main(int argc, char** argv) {
    settings o;
    o.rounds = 7;
    CLI::App app{"Times what less memory costs: checkpoints, and budgets compared with the fastest number of blocks computed again that fits."};
    app.option_defaults()->always_capture_default();
    app.add_option("--layers", o.layers)->check(CLI::Range(2, 1000));
    app.add_option("--width", o.width);
    app.add_option("--heads", o.heads);
    app.add_option("--context", o.context);
    app.add_option("--batch", o.batch);
    app.add_option("--budgets", o.budgets)->check(CLI::Range(2, 1000));
    app.add_flag("--resident", o.resident, "compare the process's resident memory with the plan; fails beyond 5%");
    return bench::run_cases("bench_memory_budget", app, o, argc, argv, [&](ht::cpu& device, bench::report& report) {
        report.note("protocol", "ways take turns, in an order that rotates; ms are medians over the rounds; checkpoints alternate with steps without");
        if (o.resident) return tell_resident(device, o, report);
        if (!report.wants({"checkpoints", o.shape(), "amp_bf16"}) && !report.wants({"budget", o.shape(), "amp_bf16"})) return;
        steps run(device, o);
        tell_checkpoints(run, o, report);
        tell_budgets(device, run, o, report);
    });
}
