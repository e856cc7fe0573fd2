// SPDX-License-Identifier: MIT
#include <algorithm>
#include <iostream>

#include <halftone/io/checkpoint/manifest.hpp>
#include <halftone/io/finite_json.hpp>
#include <halftone/observe/metrics/machine.hpp>
#include <halftone/observe/metrics/progress.hpp>
#include <halftone/observe/metrics/tensorboard.hpp>
#include <halftone/observe/metrics/terminal.hpp>
#include <halftone/observe/numerics/html.hpp>
#include <halftone/observe/report/json.hpp>
#include <halftone/observe/report/table.hpp>
#include <halftone/observe/shadow/html.hpp>

#include "../write_file.hpp"
#include "initial.hpp"
#include "report.hpp"

#if !defined(HALFTONE_COMMIT)
#define HALFTONE_COMMIT "unknown"
#endif

using json = nlohmann::ordered_json;

namespace {

using ht::detail::formatted;

/// The kinds of memory that tables show.
constexpr ht::memory_kind shown_kinds[] = {ht::memory_kind::master,     ht::memory_kind::copy,
                                           ht::memory_kind::gradient,   ht::memory_kind::moment,
                                           ht::memory_kind::activation, ht::memory_kind::workspace};

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }
std::string mebibytes_text(std::size_t bytes) { return formatted("%.1f", mebibytes(bytes)); }

json arguments_of(const options& o) {
    json arguments{{"model", o.model}, {"layers", o.layers}, {"heads", o.heads}, {"width", o.width}, {"context", o.context},
                   {"batch", o.batch}, {"accumulation", o.accumulation}, {"checkpointing", o.checkpointing}, {"steps", o.steps},
                   {"optimizer", o.optimizer}, {"lr", o.learning_rate}, {"seed", o.seed}};
    if (!o.tokens.empty()) arguments["vocabulary"] = o.vocabulary;
    if (!o.init.empty()) arguments["init"] = o.init.generic_string();
    if (o.llama) arguments.update(further_sizes(*o.llama));
    if (o.ranks > 1) arguments["ranks"] = o.ranks, arguments["zero"] = o.zero;
    return arguments;
}

template <class Bytes>
json bytes_by_kind(const Bytes& of_kind) {
    json bytes;
    for (int kind = 0; kind < ht::memory_kinds; ++kind)
        bytes[ht::name(static_cast<ht::memory_kind>(kind))] = of_kind[static_cast<std::size_t>(kind)];
    return bytes;
}
template <class Bytes>
json peaks_json(std::size_t bytes, const Bytes& of_kind) {
    return {{"peak_bytes", bytes}, {"peak_bytes_by_kind", bytes_by_kind(of_kind)}};
}

json summary_of(const run_result& r, const options& o, const machine& where) {
    const ht::training_result& t = r.training;
    json j{{"policy", r.policy},
           {"optimizer", o.optimizer},
           {"device", where.device},
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
           {"loss_scale", t.loss_scale}};
    if (r.of_ranks.empty()) return j;
    // What a rank was planned to have in use, and what each had; and what collectives cost the first one.
    json& ranks = j["memory_of_ranks"] = {{"planned", peaks_json(r.plan.peak_bytes, r.plan.peak_bytes_by_kind)}, {"measured", json::array()}};
    for (const run_peaks& each : r.of_ranks) ranks["measured"].push_back(peaks_json(each.bytes, each.of_kind));
    const run_collectives& c = r.collectives;
    j["collectives"] = {{"bytes_received", c.bytes}, {"seconds_under_way", c.seconds_under_way}, {"seconds_waited", c.seconds_waited},
                        {"hidden_share", c.hidden_share}};
    return j;
}

/// The lines of a run in the report's table of results.
std::vector<std::pair<std::string, std::string>> figures_of(const run_result& r, const char* unit) {
    const ht::training_result& t = r.training;
    std::vector<std::pair<std::string, std::string>> figures{
        {std::string("training loss, nats a ") + unit, formatted("%.4f", t.train_loss)},
        {"validation loss", r.validation ? formatted("%.4f", r.validation->loss) : "-"},
        {"tokens a second", formatted("%.0f", t.tokens_per_second)},
        {"ms a step", formatted("%.2f", t.step_ms)},
        {"peak memory, MiB", mebibytes_text(t.peak_bytes)},
        {"skipped steps", std::to_string(t.skipped_steps)},
        {"parameters", std::to_string(r.parameters)}};
    if (r.of_ranks.empty()) return figures;
    std::string peaks;
    for (const run_peaks& each : r.of_ranks) peaks += mebibytes_text(each.bytes) + ", ";
    const double n = static_cast<double>(std::max<std::int64_t>(t.steps, 1));
    figures.insert(figures.end(),
                   {{"peak memory of each rank, MiB", peaks + "planned " + mebibytes_text(r.plan.peak_bytes)},
                    {"received from other ranks, MiB a step", formatted("%.2f", r.collectives.bytes / n / (1 << 20))},
                    {"collectives, ms a step", formatted("%.2f", 1e3 * r.collectives.seconds_under_way / n)},
                    {"of these behind computation", formatted("%.0f%%", 100 * r.collectives.hidden_share)}});
    return figures;
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

}  // namespace

std::string run_arguments(const options& o, std::string_view corpus) {
    ht::detail::crc32 sum;
    sum.add(corpus.data(), corpus.size());
    json arguments = arguments_of(o);
    arguments["text"] = ht::detail::hex(sum.value());
    arguments["eval_every"] = o.eval_every;
    return arguments.dump();
}

/// Tells the progress bar, and writes the lines of one policy.
class reporter::observer final : public ht::trainer_callback {
  public:
    observer(reporter& all, const std::string& policy)
        : all_(all), policy_(policy), fields_{{"policy", policy}, {"device", all.where_.device}}, page_(all.page_of(policy)),
          progress_(std::cerr, policy, all.o_.steps, {.columns = ht::terminal_columns(stderr)}) {
        if (all.o_.ranks > 1) fields_["ranks"] = all.o_.ranks;
        static_cast<void>(all.monitor_.take());  // what was before the run
        all.write_.print_above(&progress_);
        if (!all.o_.tensorboard) return;
        events_.emplace(all.o_.out / "tensorboard" / policy,
                        ht::tensorboard_options{.on_error = all.write_.on_error(), .on_note = all.write_.on_note()});
        events_->text("arguments", "```\n" + arguments_of(all.o_).dump(2) + "\n```", 0);
    }
    ~observer() override { all_.write_.print_above(nullptr); }

    void on_step(const ht::trainer_state& s) override {
        progress_.update({.step = s.step,
                          .loss = s.loss,
                          .learning_rate = s.learning_rate,
                          .loss_scale = s.loss_scale != 1 ? s.loss_scale : 0,
                          .tokens_per_second = s.tokens_per_second,
                          .bytes = static_cast<double>(s.peak_bytes)},
                         s.seconds);
        page_.add(s);
    }
    void on_log(const ht::trainer_state& s) override {
        all_.metrics_->write(s, fields_);
        if (events_) ht::write_metrics(*events_, s);
        for (const ht::system_sample& sample : all_.monitor_.take()) {
            write_line("at_step", s.step, "system", ht::system_json(sample));
            if (events_) ht::write_system(*events_, sample, s.step);
        }
    }
    void on_overflow(const ht::trainer_state&, const ht::overflow& o) override {
        write_line("step", o.step, "overflow", ht::overflow_json(o));
        progress_.note(policy_ + "  " + o.text());
    }
    void on_numerics(const ht::trainer_state&, const ht::numerics_view& view) override {
        const std::string step = std::to_string(view.step), file = "numerics_" + policy_ + "_" + step;
        const auto write = [&](const char* ending, const std::string& content) {
            all_.write_([&] { write_file(all_.o_.out / (file + ending), content); });
        };
        write(".json", ht::numerics_json(view).dump() + "\n");
        write(".html", ht::numerics_html(view, policy_ + ", step " + step));
        constexpr std::size_t most_bytes = 200'000;  // in a page that is to stay small; others are beside it
        page_.numerics = ht::numerics_body(view);
        if (page_.numerics.size() > most_bytes) page_.numerics.clear();
        page_.links.push_back({"Numerics of " + policy_ + ", step " + step, file + ".html"});
        for (const ht::numerics_row& r : view.rows) {
            const std::string place = r.is_weight() ? r.parameter + "/weight"
                                                    : r.by.layer + "/" + r.by.operation + "/" + name(r.pass) + "_" + r.tensor();
            if (events_) events_->histogram("log2/" + place, exponents_of(r), view.step);
        }
        for (const ht::numerics_proposal& p : view.proposals()) tell(view.step, ": " + p.text);
    }
    void on_save_failed(const ht::trainer_state& s, const std::string& why) override {
        tell(s.step, ": no checkpoint could be saved: " + why);
    }
    void on_evaluate(const ht::trainer_state& s, const ht::evaluation_result& r) override {
        write_line("step", s.step, "validation_loss", r.loss);
        page_.add_validation(s.step, r.loss);
        if (events_) events_->scalar("validation/loss", r.loss, s.step);
        tell(s.step, formatted(": validation loss %.4f", r.loss));
    }

  private:
    /// A line of metrics.jsonl that is not a step's.
    void write_line(const char* at, std::int64_t step, const char* what, const json& value) {
        json line = fields_;
        line[at] = step;
        line[what] = value;
        all_.metrics_->write_line(line);
    }
    void tell(std::int64_t step, const std::string& what) { progress_.note(policy_ + "  step " + std::to_string(step) + what); }

    reporter& all_;
    std::string policy_;
    json fields_;
    ht::run_report& page_;
    std::optional<ht::tensorboard_file> events_;
    ht::progress progress_;
};

reporter::reporter(const options& o, const machine& where, const std::string& arguments, file_writes& write)
    : o_(o), where_(where), write_(write) {
    const bool has_folder = write([&] { folder_.emplace(o.out); });
    metrics_.emplace(o.out / "metrics.jsonl",
                     ht::metrics_file_options{.part = has_folder ? rejoin_metrics(o, arguments) : ht::part_file::kept,
                                              .on_error = write.on_error(),
                                              .on_note = write.on_note()});
    write([&] { summary_.emplace(o.out / "summary.json"); });
}

std::unique_ptr<ht::trainer_callback> reporter::observe(const std::string& policy) { return std::make_unique<observer>(*this, policy); }

ht::run_report& reporter::page_of(const std::string& policy) {
    for (ht::run_report& page : pages_) {
        if (page.name == policy) return page;
    }
    return pages_.emplace_back(policy);
}

void reporter::write_shadow(const std::string& policy, const ht::shadow_report& shadow) {
    const std::string name = "shadow_" + policy + ".html", title = "Shadow run of " + policy + ", step " + std::to_string(o_.shadow_step);
    write_([&] { write_file(o_.out / name, ht::shadow_html(shadow, title)); });
    page_of(policy).links.push_back({title, name});
}

void reporter::commit(const std::vector<run_result>& runs, const std::vector<ht::memory_choice>& budgets) {
    json summary{{"program", "train_gpt"},
                 {"commit", HALFTONE_COMMIT},
                 {"machine", {{"cpu", ht::cpu_model()}, {"isa", where_.isa}, {"threads", where_.threads},
                              {"gpu", where_.gpu.empty() ? json(nullptr) : json(where_.gpu)}}},
                 {"arguments", arguments_of(o_)},
                 {"runs", json::array()}};
    ht::report page{.title = "train_gpt: " + o_.model + ", " + std::to_string(o_.steps) + " steps"};
    for (std::size_t i = 0; i < runs.size(); ++i) {
        json& j = summary["runs"].emplace_back(summary_of(runs[i], o_, where_));
        if (i < budgets.size()) {
            const ht::memory_choice& c = budgets[i];
            j["budget"] = {{"bytes", o_.budget}, {"planned_peak_bytes", c.peak_bytes}, {"batch", c.micro_batch},
                           {"accumulation", c.accumulation}, {"recomputed_blocks", c.recomputed_blocks},
                           {"keeps_logits", c.keeps_logits}, {"more_operations", c.more_operations}};
        }
        ht::run_report& of_run = page.runs.emplace_back(pages_[i]);
        if (runs[i].validation) of_run.add_validation(runs[i].training.steps, runs[i].validation->loss);
        of_run.figures = figures_of(runs[i], o_.tokens.empty() ? "byte" : "token");
        of_run.policies = runs[i].policies;
    }
    page.facts = {{"processor", ht::cpu_model()}, {"device", where_.device}, {"commit", HALFTONE_COMMIT}};
    if (!where_.gpu.empty()) page.facts.push_back({"GPU", where_.gpu});
    for (const auto& [name, value] : summary["arguments"].items())
        page.facts.push_back({name, value.is_string() ? value.get<std::string>() : value.dump()});
    if (summary_) write_([&] { summary_->write(ht::finite_json(summary).dump(2) + "\n"); });
    if (o_.report) write_([&] { write_file(o_.out / "report.html", ht::report_html(page)); });
    metrics_->commit();
    if (summary_) write_([&] { summary_->commit(); });
    if (folder_) folder_->keep();
}

void print_table(std::ostream& out, const std::vector<run_result>& runs, const std::string& unit) {
    out << "                     loss, nats a " << unit << std::string(46 - unit.size() - 11, ' ') << "| peak MiB\n";
    out << "policy         train  validation  tokens/s  ms a step  skipped steps |  total";
    for (const ht::memory_kind kind : shown_kinds) out << formatted(" %10s", ht::name(kind));
    out << '\n';
    for (const run_result& r : runs) {
        const ht::training_result& t = r.training;
        out << formatted("%-12s %7.4f ", r.policy.c_str(), t.train_loss)
            << (r.validation ? formatted("%11.4f", r.validation->loss) : "          -")
            << formatted(" %9.0f %10.2f %14lld | %6.1f", t.tokens_per_second, t.step_ms,
                         static_cast<long long>(t.skipped_steps), mebibytes(t.peak_bytes));
        for (const ht::memory_kind kind : shown_kinds)
            out << formatted(" %10.1f", mebibytes(t.peak_bytes_of[static_cast<int>(kind)]));
        out << '\n';
    }
}

void print_text(std::ostream& out, const std::vector<run_result>& runs) {
    const run_result* writer = nullptr;
    for (const run_result& r : runs) {
        if (!r.text.empty() && (writer == nullptr || writer->policy != "amp_bf16")) writer = &r;
    }
    if (writer == nullptr) return;
    out << "\nThe " << writer->policy << " model writes:\n";
    for (const char c : writer->text) out << (c == '\n' || (c >= ' ' && c <= '~') ? c : '.');
    out << '\n';
}

void write_plans(const options& o, const std::vector<run_result>& plans) {
    ht::output_folder folder(o.out);
    ht::output_file file(o.out / "plan.json");
    json all{{"program", "train_gpt"}, {"commit", HALFTONE_COMMIT}, {"arguments", arguments_of(o)}, {"plans", json::array()}};
    for (const run_result& p : plans) {
        json layers = json::array();
        for (const ht::planned_parameter& layer : p.plan.layers(3))
            layers.push_back({{"path", layer.path}, {"bytes", layer.total()}, {"bytes_by_kind", bytes_by_kind(layer.bytes)}});
        all["plans"].push_back({{"policy", p.policy},
                                {"parameters", p.parameters},
                                {"peak_bytes", p.plan.peak_bytes},
                                {"peak_bytes_by_kind", bytes_by_kind(p.plan.peak_bytes_by_kind)},
                                {"bytes_at_peak_by_kind", bytes_by_kind(p.plan.bytes_at_peak)},
                                {"held_bytes", p.plan.held_bytes},
                                {"operation_at_peak", p.plan.operation},
                                {"pass_at_peak", ht::name(p.plan.of_pass)},
                                {"layers", layers}});
    }
    file.write(all.dump(2) + "\n");
    file.commit();
    folder.keep();
}

void print_plans(std::ostream& out, const std::vector<run_result>& plans) {
    out << "                   peak MiB";
    for (const ht::memory_kind kind : shown_kinds) out << formatted(" %10s", ht::name(kind));
    out << "   at the peak\n";
    for (const run_result& p : plans) {
        out << formatted("%-18s %8.1f", p.policy.c_str(), mebibytes(p.plan.peak_bytes));
        for (const ht::memory_kind kind : shown_kinds) out << formatted(" %10.1f", mebibytes(p.plan.peak_of(kind)));
        out << "   " << p.plan.operation << ", " << ht::name(p.plan.of_pass) << '\n';
    }
}
