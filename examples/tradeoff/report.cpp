// SPDX-License-Identifier: MIT
#include <algorithm>
#include <ostream>

#include <nlohmann/json.hpp>

#include <halftone/io/finite_json.hpp>
#include <halftone/observe/metrics/machine.hpp>
#include <halftone/observe/report/table.hpp>

#include "report.hpp"

#if !defined(HALFTONE_COMMIT)
#define HALFTONE_COMMIT "unknown"
#endif

namespace ht = halftone;
using json = nlohmann::ordered_json;

namespace {

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

using ht::detail::formatted;

/// The kinds of memory that tables show.
constexpr ht::memory_kind shown_kinds[] = {ht::memory_kind::master,     ht::memory_kind::copy,
                                           ht::memory_kind::gradient,   ht::memory_kind::moment,
                                           ht::memory_kind::activation, ht::memory_kind::workspace};

json bytes_by_kind(const bytes_in_use& bytes) {
    json all;
    for (int kind = 0; kind < ht::memory_kinds; ++kind)
        all[ht::name(static_cast<ht::memory_kind>(kind))] = bytes.by_kind[static_cast<std::size_t>(kind)];
    return all;
}

void print_kinds(std::ostream& out, const bytes_in_use& bytes) {
    for (const ht::memory_kind kind : shown_kinds)
        out << formatted(" %10.1f", mebibytes(bytes.by_kind[static_cast<std::size_t>(kind)]));
}
void print_heads_of_kinds(std::ostream& out) {
    for (const ht::memory_kind kind : shown_kinds) out << formatted(" %10s", ht::name(kind));
}

}  // namespace

void print_plans(std::ostream& out, const std::vector<finished_row>& rows) {
    out << "                                  peak MiB, planned\n";
    out << formatted("%-32s", "");
    out << "   total";
    print_heads_of_kinds(out);
    out << "   at the peak\n";
    for (const finished_row& r : rows) {
        out << formatted("%-32s", r.what.name.c_str());
        out << formatted(" %7.1f", mebibytes(r.result.planned.peak));
        print_kinds(out, r.result.planned);
        out << "   " << r.result.operation_at_peak << '\n';
    }
}

void print_table(std::ostream& out, const std::vector<finished_row>& rows) {
    out << "                                     peak MiB          ms a       loss, nats a text           | peak MiB\n";
    out << "                                  planned  measured    step    train  validation  accuracy |";
    print_heads_of_kinds(out);
    out << '\n';
    for (const finished_row& r : rows) {
        out << formatted("%-32s", r.what.name.c_str());
        out << formatted(" %8.1f", mebibytes(r.result.planned.peak));
        out << formatted(" %9.1f", mebibytes(r.result.measured.peak));
        out << formatted(" %7.2f", r.result.training.step_ms);
        out << formatted(" %8.4f", r.result.training.train_loss);
        out << formatted(" %11.4f", r.result.validation_loss);
        out << formatted(" %8.1f%% |", 100 * r.result.accuracy);
        print_kinds(out, r.result.measured);
        out << '\n';
    }
}

ht::report report_page(const options& o, const surroundings& around, const std::vector<finished_row>& rows) {
    ht::report page{.title = "tradeoff: " + std::to_string(o.layers) + " blocks, " + std::to_string(o.steps) + " steps", .of_loss = "nats a text"};
    page.facts = {
        {"processor", ht::cpu_model()}, {"device", around.device}, {"commit", HALFTONE_COMMIT}, {"texts", around.text}};
    for (const finished_row& r : rows) {
        ht::run_report& run = page.runs.emplace_back(r.what.name);
        run.figures = {{"training loss, nats a text", formatted("%.4f", r.result.training.train_loss)},
                       {"validation loss", formatted("%.4f", r.result.validation_loss)},
                       {"accuracy", formatted("%.1f%%", 100 * r.result.accuracy)},
                       {"ms a step", formatted("%.2f", r.result.training.step_ms)},
                       {"peak memory, MiB", formatted("%.1f", mebibytes(r.result.measured.peak))},
                       {"planned peak, MiB", formatted("%.1f", mebibytes(r.result.planned.peak))}};
        run.policies = r.result.policies;
    }
    return page;
}

std::string summary_json(const options& o, const surroundings& around, const std::vector<finished_row>& rows) {
    json summary{{"program", "tradeoff"},
                 {"commit", HALFTONE_COMMIT},
                 {"machine", {{"cpu", ht::cpu_model()}, {"isa", around.isa}, {"threads", around.threads}, {"gpu", nullptr}}},
                 {"arguments", {{"layers", o.layers}, {"heads", o.heads}, {"width", o.width}, {"length", o.length},
                                {"batch", o.batch}, {"steps", o.steps}, {"checkpointing", o.checkpointing},
                                {"lr", o.learning_rate}, {"held_out", o.held_out}, {"seed", o.seed}}},
                 {"text", {{"source", around.text}, {"training", around.training}, {"held_out", around.held_out},
                           {"vocabulary", around.vocabulary}}},
                 {"runs", json::array()}};
    for (const finished_row& r : rows) {
        const ht::training_result& t = r.result.training;
        summary["runs"].push_back({{"name", r.what.name},
                                   {"policy", r.what.is_bf16 ? "amp_bf16" : "full_fp32"},
                                   {"optimizer", r.what.has_8bit_state ? "adamw_8bit" : "adamw"},
                                   {"checkpointing", r.what.recomputes ? o.checkpointing : 0},
                                   {"device", around.device},
                                   {"parameters", r.result.parameters},
                                   {"steps", t.steps},
                                   {"train_loss", t.train_loss},
                                   {"validation_loss", r.result.validation_loss},
                                   {"accuracy", r.result.accuracy},
                                   {"tokens_per_second", t.tokens_per_second},
                                   {"step_ms", t.step_ms},
                                   {"planned_peak_bytes", r.result.planned.peak},
                                   {"peak_bytes", r.result.measured.peak},
                                   {"planned_peak_bytes_by_kind", bytes_by_kind(r.result.planned)},
                                   {"peak_bytes_by_kind", bytes_by_kind(r.result.measured)},
                                   {"operation_at_peak", r.result.operation_at_peak},
                                   {"skipped_steps", t.skipped_steps},
                                   {"loss_scale", t.loss_scale}});
    }
    return ht::finite_json(summary).dump(2) + "\n";
}
