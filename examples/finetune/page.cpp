// SPDX-License-Identifier: MIT
#include <algorithm>
#include <ostream>

#include <nlohmann/json.hpp>

#include <halftone/io/finite_json.hpp>
#include <halftone/observe/metrics/machine.hpp>
#include <halftone/observe/report/bars.hpp>
#include <halftone/observe/report/table.hpp>

#include "../write_file.hpp"
#include "page.hpp"
#include "results.hpp"

using ht::detail::formatted;
using json = nlohmann::ordered_json;

namespace {

std::string text_of(const shown_run& run, const ids& tokens) {
    return run.tokenizer.decode(tokens, {.skip_special_tokens = true});
}
std::string exact_text(const held_out_result& r, std::size_t of) {
    return std::to_string(r.exact) + " of " + std::to_string(of);
}

/// A question as it is shown: its last lines, if it is long.
std::string question_text(const shown_run& run, const question& q) {
    std::string text = text_of(run, q.prompt);
    constexpr std::size_t most = 300;
    if (text.size() <= most) return text;
    std::size_t first = text.size() - most;
    while (first < text.size() && (static_cast<unsigned char>(text[first]) & 0xC0) == 0x80) ++first;
    return "..." + text.substr(first);
}
/// In one line of a terminal.
std::string in_a_line(std::string text) {
    for (char& c : text) {
        if (static_cast<unsigned char>(c) < ' ' || c == 127) c = ' ';
    }
    return text;
}

std::string answers_table(const shown_run& run) {
    std::string html =
        "<div class=\"scroll\"><table "
        "class=\"data\">\n<tr><th>question</th><th>expected</th><th>before</th><th>after</th></tr>\n";
    const auto cell = [](const std::string& text, bool is_right = false) {
        return std::string(is_right ? "<td class=\"right\">" : "<td>") + ht::detail::escaped(text) + "</td>";
    };
    const auto& asked = run.data.questions;
    for (std::size_t i = 0; i < std::min<std::size_t>(asked.size(), 40); ++i) {
        const held_out_result &before = run.result.before, &after = run.result.after;
        html += "<tr>" + cell(question_text(run, asked[i])) + cell(text_of(run, asked[i].answer)) +
                cell(text_of(run, before.answers[i]), is_exact(before.answers[i], asked[i].answer, run.t.ends)) +
                cell(text_of(run, after.answers[i]), is_exact(after.answers[i], asked[i].answer, run.t.ends)) +
                "</tr>\n";
    }
    return html + "</table></div>\n";
}

std::string memory_bars(const shown_run& run) {
    ht::detail::bar_chart c{.title = "Memory at the peak", .unit = "MiB", .mark_name = "measured"};
    const ht::memory_plan& plan = run.chosen.memory.plan;
    ht::detail::bar_row row{"1",
                            run.o.method + " as planned, " + bytes_text(plan.peak_bytes),
                            {},
                            static_cast<double>(run.result.peak_bytes) / 0x1p20};
    for (int k = 0; k < ht::memory_kinds; ++k) {
        const auto kind = static_cast<ht::memory_kind>(k);
        if (plan.at_peak(kind) != 0)
            row.parts.push_back({ht::name(kind), static_cast<double>(plan.at_peak(kind)) / 0x1p20});
    }
    c.rows.push_back(std::move(row));
    return c.svg();
}

ht::report report_of(const shown_run& run) {
    const tuning_result& r = run.result;
    ht::report page{.title = "finetune: " + run.o.method};
    page.facts = {{"processor", ht::cpu_model()},
                  {"model", run.o.folder.string()},
                  {"data", run.o.data.string()},
                  {"conversations", std::to_string(run.data.lines) + ", of which " +
                                        std::to_string(run.data.lines_held_out) + " are held out"},
                  {"method", run.o.method + ": " + run.chosen.of->what}};
    ht::run_report& of_run = page.runs.emplace_back(run.page);
    of_run.policies = r.policies;
    of_run.figures = {{"held-out loss before", formatted("%.4f", r.before.loss)},
                      {"held-out loss after", formatted("%.4f", r.after.loss)},
                      {"exact answers before", exact_text(r.before, run.data.questions.size())},
                      {"exact answers after", exact_text(r.after, run.data.questions.size())},
                      {"ms a step", formatted("%.1f", r.training.step_ms)},
                      {"tokens a second", formatted("%.0f", r.training.tokens_per_second)},
                      {"peak memory planned", std::to_string(run.chosen.memory.peak_bytes) + " bytes"},
                      {"peak memory measured", std::to_string(r.peak_bytes) + " bytes"}};
    return page;
}

/// The report's page with what this program knows besides: answers and memory, in front of its first heading.
std::string page_of(const shown_run& run) {
    std::string page = ht::report_html(report_of(run));
    const std::string more =
        "<style>td.right{background:var(--in)}td{vertical-align:top;white-space:pre-wrap}</style>\n<h2>Answers to "
        "held-out questions</h2>\n<p>" +
        exact_text(run.result.before, run.data.questions.size()) + " are exact before, " +
        exact_text(run.result.after, run.data.questions.size()) + " after.</p>\n" + answers_table(run) +
        "<h2>Memory</h2>\n" + memory_bars(run);
    const std::size_t at = page.find("<h2");
    return page.insert(at == page.npos ? page.rfind("</body>") : at, more);
}

json summary_of(const shown_run& run) {
    const tuning_result& r = run.result;
    json j{{"program", "finetune"},
           {"model", run.o.folder.string()},
           {"data", run.o.data.string()},
           {"method", run.o.method},
           {"policy", run.chosen.of->what},
           {"steps", r.training.steps},
           {"conversations", run.data.lines},
           {"held_out", run.data.lines_held_out},
           {"questions", run.data.questions.size()},
           {"loss_before", r.before.loss},
           {"loss_after", r.after.loss},
           {"exact_before", r.before.exact},
           {"exact_after", r.after.exact},
           {"planned_peak_bytes", run.chosen.memory.peak_bytes},
           {"peak_bytes", r.peak_bytes},
           {"parameters", r.parameters},
           {"step_ms", r.training.step_ms},
           {"answers", json::array()}};
    for (std::size_t i = 0; i < run.data.questions.size(); ++i)
        j["answers"].push_back({{"question", text_of(run, run.data.questions[i].prompt)},
                                {"expected", text_of(run, run.data.questions[i].answer)},
                                {"before", text_of(run, r.before.answers[i])},
                                {"after", text_of(run, r.after.answers[i])}});
    return j;
}

}  // namespace

void print_results(std::ostream& out, const shown_run& run) {
    const tuning_result& r = run.result;
    const auto& asked = run.data.questions;
    for (std::size_t i = 0; i < std::min<std::size_t>(asked.size(), 4); ++i)
        out << "\n? " << in_a_line(question_text(run, asked[i]))
            << "\n  before: " << in_a_line(text_of(run, r.before.answers[i]))
            << "\n  after:  " << in_a_line(text_of(run, r.after.answers[i])) << '\n';
    out << formatted("\nheld-out loss %.4f before, %.4f after; exact answers ", r.before.loss, r.after.loss)
        << exact_text(r.before, asked.size()) << " before, " << exact_text(r.after, asked.size()) << " after\n";
    out << "memory: planned " << run.chosen.memory.peak_bytes << " bytes, measured " << r.peak_bytes << " bytes\n";
    out << "written to " << run.o.out.string() << ": " << (run.o.method == "full" ? "" : "adapter (PEFT), ")
        << "merged (transformers)"
        << (std::filesystem::exists(run.o.out / "model.gguf") ? ", model.gguf (llama.cpp)" : "") << ", report.html"
        << std::endl;
}

void write_results(const shown_run& run) {
    write_file(run.o.out / "summary.json",
               ht::finite_json(summary_of(run)).dump(2, ' ', false, json::error_handler_t::replace) + "\n");
    write_file(run.o.out / "report.html", page_of(run));
}
