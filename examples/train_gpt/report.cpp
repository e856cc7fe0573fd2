// SPDX-License-Identifier: MIT
#include "report.hpp"

#include <algorithm>
#include <cstdio>
#include <iostream>

#include <halftone/observe/metrics/machine.hpp>
#include <halftone/observe/metrics/metrics.hpp>
#include <halftone/observe/metrics/progress.hpp>
#include <halftone/observe/metrics/terminal.hpp>
#include <halftone/observe/numerics/html.hpp>
#include <halftone/observe/numerics/json.hpp>
#include <halftone/observe/overflow/json.hpp>

#if !defined(HALFTONE_COMMIT)
#define HALFTONE_COMMIT "unknown"
#endif

namespace ht = halftone;
using json = nlohmann::ordered_json;

struct reporter::state {
    options o;
    machine where;
    ht::output_folder folder;
    ht::metrics_file metrics;
    ht::output_file summary;  // opened early, so that an unwritable folder is reported before training
};

namespace {

class observer final : public ht::trainer_callback {
  public:
    observer(const std::string& policy, const std::string& device, std::int64_t steps, ht::metrics_file& metrics,
             const std::filesystem::path& folder)
        : fields_{{"policy", policy}, {"device", device}},
          folder_(folder),
          metrics_(metrics),
          progress_(std::cerr, policy, steps, {.columns = ht::terminal_columns(stderr)}) {}

    void on_step(const ht::trainer_state& s) override {
        const bool is_scaled = s.loss_scale != 1;
        progress_.update({.step = s.step,
                          .loss = s.loss,
                          .learning_rate = s.learning_rate,
                          .loss_scale = is_scaled ? s.loss_scale : 0,
                          .tokens_per_second = s.tokens_per_second},
                         s.seconds);
    }
    void on_log(const ht::trainer_state& s) override { metrics_.write(s, fields_); }
    void on_overflow(const ht::trainer_state&, const ht::overflow& o) override {
        json line = fields_;
        line["step"] = o.step;
        line["overflow"] = ht::overflow_json(o);
        metrics_.write_line(line);
        progress_.note(fields_["policy"].get<std::string>() + "  " + o.text());
    }
    void on_numerics(const ht::trainer_state&, const ht::numerics_view& view) override {
        const std::string policy = fields_["policy"].get<std::string>(), step = std::to_string(view.step);
        const auto write = [&](const std::string& ending, const std::string& text) {
            ht::output_file file(folder_ / ("numerics_" + policy + "_" + step + ending));
            file.write(text);
            file.commit();
        };
        write(".json", ht::numerics_json(view).dump() + "\n");
        write(".html", ht::numerics_html(view, policy + ", step " + step));
        for (const ht::numerics_proposal& p : view.proposals())
            progress_.note(policy + "  step " + step + ": " + p.text);
    }
    void on_evaluate(const ht::trainer_state& s, const ht::evaluation_result& r) override {
        json line = fields_;
        line["step"] = s.step;
        line["validation_loss"] = r.loss;
        metrics_.write_line(line);
        char text[64];
        std::snprintf(text, sizeof text, "  step %lld: validation loss %.4f", static_cast<long long>(s.step), r.loss);
        progress_.note(fields_["policy"].get<std::string>() + text);
    }

  private:
    json fields_;
    std::filesystem::path folder_;
    ht::metrics_file& metrics_;
    ht::progress progress_;
};

template <class Bytes>
json bytes_by_kind(const Bytes& of_kind) {
    json bytes;
    for (int kind = 0; kind < ht::memory_kinds; ++kind)
        bytes[ht::name(static_cast<ht::memory_kind>(kind))] = of_kind[static_cast<std::size_t>(kind)];
    return bytes;
}

json arguments_of(const options& o) {
    return {{"model", o.model}, {"layers", o.layers}, {"heads", o.heads}, {"width", o.width}, {"context", o.context}, {"batch", o.batch},
            {"accumulation", o.accumulation}, {"checkpointing", o.checkpointing}, {"steps", o.steps},
            {"optimizer", o.optimizer}, {"lr", o.learning_rate}, {"seed", o.seed}};
}

/// The kinds of memory that tables show.
constexpr ht::memory_kind shown_kinds[] = {ht::memory_kind::master,     ht::memory_kind::copy,
                                           ht::memory_kind::gradient,   ht::memory_kind::moment,
                                           ht::memory_kind::activation, ht::memory_kind::workspace};
double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

reporter::reporter(const options& o, const machine& where)
    : state_(new state{o, where, ht::output_folder(o.out), ht::metrics_file(o.out / "metrics.jsonl"),
                       ht::output_file(o.out / "summary.json")}) {}
reporter::~reporter() = default;

std::unique_ptr<ht::trainer_callback> reporter::observe(const std::string& policy) {
    return std::make_unique<observer>(policy, state_->where.device, state_->o.steps, state_->metrics,
                                      state_->folder.path());
}

void reporter::commit(const std::vector<run_result>& runs, const std::vector<budget_result>& budgets) {
    const options& o = state_->o;
    json summary{{"program", "train_gpt"},
                 {"commit", HALFTONE_COMMIT},
                 {"machine", {{"cpu", ht::cpu_model()}, {"isa", state_->where.isa}, {"threads", state_->where.threads},
                   {"gpu", state_->where.gpu.empty() ? json(nullptr) : json(state_->where.gpu)}}},
                 {"arguments", arguments_of(o)},
                 {"runs", json::array()}};
    for (const run_result& r : runs) {
        const ht::training_result& t = r.training;
        summary["runs"].push_back({{"policy", r.policy},
                                   {"optimizer", o.optimizer},
                                   {"device", state_->where.device},
                                   {"parameters", r.parameters},
                                   {"steps", t.steps},
                                   {"train_loss", t.train_loss},
                                   {"validation_loss", r.validation ? json(r.validation->loss) : json(nullptr)},
                                   {"tokens_per_second", t.tokens_per_second},
                                   {"step_ms", t.step_ms},
                                   {"peak_bytes", t.peak_bytes},
                                   {"peak_bytes_by_kind", bytes_by_kind(t.peak_bytes_of)},
                                   {"skipped_steps", t.skipped_steps},
                                   {"skipped_infinity", t.skips.infinity},
                                   {"skipped_nan", t.skips.not_a_number},
                                   {"skipped_outlier", t.skips.outlier},
                                   {"loss_scale", t.loss_scale}});
    }
    for (std::size_t i = 0; i < std::min(runs.size(), budgets.size()); ++i) {
        const options& chosen = budgets[i].run;
        summary["runs"][i]["budget"] = {{"bytes", o.budget},
                                        {"planned_peak_bytes", budgets[i].peak_bytes},
                                        {"batch", chosen.batch},
                                        {"accumulation", chosen.accumulation},
                                        {"recomputed_blocks", chosen.recomputed_blocks},
                                        {"keeps_logits", chosen.keeps_logits},
                                        {"more_operations", budgets[i].more_work}};
    }
    state_->summary.write(summary.dump(2) + "\n");
    state_->metrics.commit();
    state_->summary.commit();
    state_->folder.keep();
}

void print_table(std::ostream& out, const std::vector<run_result>& runs) {
    char cell[64];
    const auto put = [&](const char* format, auto value) {
        std::snprintf(cell, sizeof cell, format, value);
        out << cell;
    };
    out << "                     loss, nats a byte                               | peak MiB\n";
    out << "policy         train  validation  tokens/s  ms a step  skipped steps |  total";
    for (const ht::memory_kind kind : shown_kinds) put(" %10s", ht::name(kind));
    out << '\n';
    for (const run_result& r : runs) {
        const ht::training_result& t = r.training;
        put("%-12s", r.policy.c_str());
        put(" %7.4f", t.train_loss);
        if (r.validation) {
            put(" %11.4f", r.validation->loss);
        } else {
            put(" %11s", "-");
        }
        put(" %9.0f", t.tokens_per_second);
        put(" %10.2f", t.step_ms);
        put(" %14lld |", static_cast<long long>(t.skipped_steps));
        put(" %6.1f", mebibytes(t.peak_bytes));
        for (const ht::memory_kind kind : shown_kinds) put(" %10.1f", mebibytes(t.peak_bytes_of[static_cast<int>(kind)]));
        out << '\n';
    }
}

void write_plans(const options& o, const std::vector<run_plan>& plans) {
    ht::output_folder folder(o.out);
    ht::output_file file(o.out / "plan.json");
    json all{{"program", "train_gpt"}, {"commit", HALFTONE_COMMIT}, {"arguments", arguments_of(o)}, {"plans", json::array()}};
    for (const run_plan& p : plans) {
        json layers = json::array();
        for (const ht::planned_parameter& layer : p.memory.layers(3))
            layers.push_back({{"path", layer.path}, {"bytes", layer.total()}, {"bytes_by_kind", bytes_by_kind(layer.bytes)}});
        all["plans"].push_back({{"policy", p.policy},
                                {"parameters", p.parameters},
                                {"peak_bytes", p.memory.peak_bytes},
                                {"peak_bytes_by_kind", bytes_by_kind(p.memory.peak_bytes_by_kind)},
                                {"bytes_at_peak_by_kind", bytes_by_kind(p.memory.bytes_at_peak)},
                                {"held_bytes", p.memory.held_bytes},
                                {"operation_at_peak", p.memory.operation},
                                {"pass_at_peak", ht::name(p.memory.of_pass)},
                                {"layers", layers}});
    }
    file.write(all.dump(2) + "\n");
    file.commit();
    folder.keep();
}

void print_plans(std::ostream& out, const std::vector<run_plan>& plans) {
    char cell[96];
    const auto put = [&](const char* format, auto value) {
        std::snprintf(cell, sizeof cell, format, value);
        out << cell;
    };
    out << "                   peak MiB";
    for (const ht::memory_kind kind : shown_kinds) put(" %10s", ht::name(kind));
    out << "   at the peak\n";
    for (const run_plan& p : plans) {
        put("%-18s", p.policy.c_str());
        put(" %8.1f", mebibytes(p.memory.peak_bytes));
        for (const ht::memory_kind kind : shown_kinds) put(" %10.1f", mebibytes(p.memory.peak_of(kind)));
        out << "   " << p.memory.operation << ", " << ht::name(p.memory.of_pass) << '\n';
    }
}

std::string printable(const std::string& text) {
    std::string clean;
    for (const char c : text) clean += c == '\n' || (c >= ' ' && c <= '~') ? c : '.';
    return clean;
}
