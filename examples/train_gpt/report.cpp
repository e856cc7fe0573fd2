// SPDX-License-Identifier: MIT
#include "report.hpp"

#include "../write_file.hpp"
#include "resume.hpp"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <iostream>
#include <optional>

#include <halftone/io/finite_json.hpp>
#include <halftone/observe/metrics/machine.hpp>
#include <halftone/observe/metrics/metrics.hpp>
#include <halftone/observe/metrics/progress.hpp>
#include <halftone/observe/metrics/system.hpp>
#include <halftone/observe/metrics/tensorboard.hpp>
#include <halftone/observe/metrics/terminal.hpp>
#include <halftone/observe/numerics/html.hpp>
#include <halftone/observe/numerics/json.hpp>
#include <halftone/observe/overflow/json.hpp>
#include <halftone/observe/shadow/html.hpp>

#if !defined(HALFTONE_COMMIT)
#define HALFTONE_COMMIT "unknown"
#endif

namespace ht = halftone;
using json = nlohmann::ordered_json;

struct reporter::state {
    options o;
    machine where;
    std::string arguments;
    file_writes& write;
    std::optional<ht::output_folder> folder{};
    std::optional<ht::metrics_file> metrics{};
    std::optional<ht::output_file> summary{};  // opened early, so that an unwritable folder is reported before training
    ht::system_monitor monitor{};
    std::deque<ht::run_report> pages{};  // which observers refer to
};

namespace {

json arguments_of(const options& o) {
    json arguments{{"model", o.model}, {"layers", o.layers}, {"heads", o.heads}, {"width", o.width}, {"context", o.context}, {"batch", o.batch},
            {"accumulation", o.accumulation}, {"checkpointing", o.checkpointing}, {"steps", o.steps},
            {"optimizer", o.optimizer}, {"lr", o.learning_rate}, {"seed", o.seed}};
    if (!o.tokens.empty()) arguments["vocabulary"] = o.vocabulary;
    if (o.ranks > 1) arguments["ranks"] = o.ranks, arguments["zero"] = o.zero;
    return arguments;
}

/// The exponents of a tensor's finite values, as a histogram of log2 |x|.
ht::metrics_histogram exponents_of(const ht::numerics_row& r) {
    ht::metrics_histogram h;
    for (int e = -149; e <= 127; ++e) {
        const auto n = static_cast<double>(r.counts.count(e, e));
        if (n == 0) continue;
        if (h.count == 0) h.min = e;
        h.max = e + 1, h.count += n, h.sum += n * (e + 0.5), h.sum_squares += n * (e + 0.5) * (e + 0.5);
        h.upper.push_back(e + 1), h.counts.push_back(n);
    }
    return h;
}

class observer final : public ht::trainer_callback {
  public:
    observer(const std::string& policy, const std::string& device, const options& o, ht::metrics_file& metrics, file_writes& write,
             ht::system_monitor& monitor, ht::run_report& page)
        : fields_{{"policy", policy}, {"device", device}},
          folder_(o.out),
          metrics_(metrics),
          write_(write),
          monitor_(monitor),
          page_(page),
          progress_(std::cerr, policy, o.steps, {.columns = ht::terminal_columns(stderr)}) {
        if (o.ranks > 1) fields_["ranks"] = o.ranks;
        static_cast<void>(monitor_.take());  // what was before the run
        write_.print_above(&progress_);
        if (!o.tensorboard) return;
        events_.emplace(o.out / "tensorboard" / policy,
                        ht::tensorboard_options{.on_error = write_.on_error(), .on_note = write_.on_note()});
        events_->text("arguments", "```\n" + arguments_of(o).dump(2) + "\n```", 0);
    }

    ~observer() override { write_.print_above(nullptr); }

    void on_step(const ht::trainer_state& s) override {
        const bool is_scaled = s.loss_scale != 1;
        progress_.update({.step = s.step,
                          .loss = s.loss,
                          .learning_rate = s.learning_rate,
                          .loss_scale = is_scaled ? s.loss_scale : 0,
                          .tokens_per_second = s.tokens_per_second,
                          .bytes = static_cast<double>(s.peak_bytes)},
                         s.seconds);
        page_.add(s);
    }
    void on_log(const ht::trainer_state& s) override {
        metrics_.write(s, fields_);
        if (events_) ht::write_metrics(*events_, s);
        for (const ht::system_sample& sample : monitor_.take()) {
            json line = fields_;
            line["at_step"] = s.step;
            line["system"] = ht::system_json(sample);
            metrics_.write_line(line);
            if (events_) ht::write_system(*events_, sample, s.step);
        }
    }
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
            write_([&] { write_file(folder_ / ("numerics_" + policy + "_" + step + ending), text); });
        };
        write(".json", ht::numerics_json(view).dump() + "\n");
        write(".html", ht::numerics_html(view, policy + ", step " + step));
        constexpr std::size_t most_bytes = 200'000;  // in a page that is to stay small; others are beside it
        page_.numerics = ht::numerics_body(view);
        if (page_.numerics.size() > most_bytes) page_.numerics.clear();
        page_.links.push_back({"Numerics of " + policy + ", step " + step, "numerics_" + policy + "_" + step + ".html"});
        if (events_) {
            for (const ht::numerics_row& r : view.rows) {
                const std::string place = r.is_weight() ? r.parameter : r.by.layer + "/" + r.by.operation;
                events_->histogram("log2/" + place + "/" + (r.is_weight() ? "weight" : std::string(name(r.pass)) + "_" + r.tensor()),
                                   exponents_of(r), view.step);
            }
        }
        for (const ht::numerics_proposal& p : view.proposals())
            progress_.note(policy + "  step " + step + ": " + p.text);
    }
    void on_save_failed(const ht::trainer_state& s, const std::string& why) override {
        progress_.note(fields_["policy"].get<std::string>() + "  step " + std::to_string(s.step) +
                       ": no checkpoint could be saved: " + why);
    }
    void on_evaluate(const ht::trainer_state& s, const ht::evaluation_result& r) override {
        json line = fields_;
        line["step"] = s.step;
        line["validation_loss"] = r.loss;
        metrics_.write_line(line);
        page_.add_validation(s.step, r.loss);
        if (events_) events_->scalar("validation/loss", r.loss, s.step);
        char text[64];
        std::snprintf(text, sizeof text, "  step %lld: validation loss %.4f", static_cast<long long>(s.step), r.loss);
        progress_.note(fields_["policy"].get<std::string>() + text);
    }

  private:
    json fields_;
    std::filesystem::path folder_;
    ht::metrics_file& metrics_;
    file_writes& write_;
    ht::system_monitor& monitor_;
    ht::run_report& page_;
    std::optional<ht::tensorboard_file> events_;
    ht::progress progress_;
};

template <class Bytes>
json bytes_by_kind(const Bytes& of_kind) {
    json bytes;
    for (int kind = 0; kind < ht::memory_kinds; ++kind)
        bytes[ht::name(static_cast<ht::memory_kind>(kind))] = of_kind[static_cast<std::size_t>(kind)];
    return bytes;
}

/// The kinds of memory that tables show.
constexpr ht::memory_kind shown_kinds[] = {ht::memory_kind::master,     ht::memory_kind::copy,
                                           ht::memory_kind::gradient,   ht::memory_kind::moment,
                                           ht::memory_kind::activation, ht::memory_kind::workspace};
double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string number(const char* format, double value) {
    char text[40];
    std::snprintf(text, sizeof text, format, value);
    return std::string(text);
}
std::string mebibytes_text(std::size_t bytes) { return number("%.1f", mebibytes(bytes)); }
/// "12.1, 12.1, planned 12.1".
std::string peaks_text(const run_result& r) {
    std::string text;
    for (const run_peaks& each : r.of_ranks) text += mebibytes_text(each.bytes) + ", ";
    return text + "planned " + (r.planned ? mebibytes_text(r.planned->bytes) : "-");
}
json peaks_json(const run_peaks& p) { return {{"peak_bytes", p.bytes}, {"peak_bytes_by_kind", bytes_by_kind(p.of_kind)}}; }
/// What a rank was planned to have in use, and what each had.
json ranks_json(const run_result& r) {
    json all{{"planned", r.planned ? peaks_json(*r.planned) : json(nullptr)}, {"measured", json::array()}};
    for (const run_peaks& each : r.of_ranks) all["measured"].push_back(peaks_json(each));
    return all;
}

/// What collectives cost the first rank.
std::vector<std::pair<std::string, std::string>> collectives_figures(const run_collectives& c, std::int64_t steps) {
    const double n = static_cast<double>(std::max<std::int64_t>(steps, 1));
    return {{"received from other ranks, MiB a step", number("%.2f", c.bytes / n / (1 << 20))},
            {"collectives, ms a step", number("%.2f", 1e3 * c.seconds_under_way / n)},
            {"of these behind computation", number("%.0f%%", 100 * c.hidden_share)}};
}
json collectives_json(const run_collectives& c) {
    return {{"bytes_received", c.bytes}, {"seconds_under_way", c.seconds_under_way}, {"seconds_waited", c.seconds_waited},
            {"hidden_share", c.hidden_share}};
}

/// report.html: the runs side by side.
void write_report(const options& o, const machine& where, const std::vector<run_result>& runs,
                  const std::deque<ht::run_report>& pages) {
    ht::report all{.title = "train_gpt: " + o.model + ", " + std::to_string(o.steps) + " steps"};
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const run_result& r = runs[i];
        const ht::training_result& t = r.training;
        ht::run_report page = pages[i];
        if (r.validation) page.add_validation(t.steps, r.validation->loss);
        page.figures = {{o.tokens.empty() ? "training loss, nats a byte" : "training loss, nats a token", number("%.4f", t.train_loss)},
                        {"validation loss", r.validation ? number("%.4f", r.validation->loss) : "-"},
                        {"tokens a second", number("%.0f", t.tokens_per_second)},
                        {"ms a step", number("%.2f", t.step_ms)},
                        {"peak memory, MiB", mebibytes_text(t.peak_bytes)},
                        {"skipped steps", std::to_string(t.skipped_steps)},
                        {"parameters", std::to_string(r.parameters)}};
        if (!r.of_ranks.empty()) {
            page.figures.push_back({"peak memory of each rank, MiB", peaks_text(r)});
            for (auto& figure : collectives_figures(r.collectives, t.steps)) page.figures.push_back(std::move(figure));
        }
        page.policies = r.policies;
        all.runs.push_back(std::move(page));
    }
    all.facts = {{"processor", ht::cpu_model()}, {"device", where.device}, {"commit", HALFTONE_COMMIT}};
    if (!where.gpu.empty()) all.facts.push_back({"GPU", where.gpu});
    const json arguments = arguments_of(o);
    for (const auto& [name, value] : arguments.items())
        all.facts.push_back({name, value.is_string() ? value.get<std::string>() : value.dump()});
    write_file(o.out / "report.html", ht::report_html(all));
}

}  // namespace

std::string run_arguments(const options& o, std::string_view corpus) {
    json arguments = arguments_of(o);
    arguments["text"] = checksum_of(corpus);
    arguments["eval_every"] = o.eval_every;
    return arguments.dump();
}

reporter::reporter(const options& o, const machine& where, std::string_view corpus, file_writes& write) {
    state_.reset(new state{o, where, run_arguments(o, corpus), write});
    state& s = *state_;
    const bool has_folder = write([&] { s.folder.emplace(o.out); });
    s.metrics.emplace(o.out / "metrics.jsonl",
                      ht::metrics_file_options{.part = has_folder ? rejoin_metrics(o, s.arguments) : ht::part_file::kept,
                                               .on_error = write.on_error(),
                                               .on_note = write.on_note()});
    write([&] { s.summary.emplace(o.out / "summary.json"); });
}
reporter::~reporter() = default;

std::string reporter::checkpoints(const std::string& policy) const { return (state_->o.out / policy).string(); }
std::string reporter::arguments() const { return state_->arguments; }

std::unique_ptr<ht::trainer_callback> reporter::observe(const std::string& policy) {
    return std::make_unique<observer>(policy, state_->where.device, state_->o, *state_->metrics, state_->write, state_->monitor,
                                      page_of(policy));
}

ht::run_report& reporter::page_of(const std::string& policy) {
    for (ht::run_report& page : state_->pages) {
        if (page.name == policy) return page;
    }
    return state_->pages.emplace_back(policy);
}

void reporter::write_shadow(const std::string& policy, const ht::shadow_report& shadow) {
    const std::string name = "shadow_" + policy + ".html", title = "Shadow run of " + policy + ", step " + std::to_string(state_->o.shadow_step);
    state_->write([&] { write_file(state_->o.out / name, ht::shadow_html(shadow, title)); });
    page_of(policy).links.push_back({title, name});
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
        if (!r.of_ranks.empty()) {
            summary["runs"].back()["memory_of_ranks"] = ranks_json(r);
            summary["runs"].back()["collectives"] = collectives_json(r.collectives);
        }
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
    file_writes& write = state_->write;
    if (state_->summary) write([&] { state_->summary->write(ht::finite_json(summary).dump(2) + "\n"); });
    if (o.report) write([&] { write_report(o, state_->where, runs, state_->pages); });
    state_->metrics->commit();
    if (state_->summary) write([&] { state_->summary->commit(); });
    if (state_->folder) state_->folder->keep();
}

void print_table(std::ostream& out, const std::vector<run_result>& runs, const std::string& unit) {
    char cell[64];
    const auto put = [&](const char* format, auto value) {
        std::snprintf(cell, sizeof cell, format, value);
        out << cell;
    };
    out << "                     loss, nats a " << unit << std::string(46 - unit.size() - 11, ' ') << "| peak MiB\n";
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
