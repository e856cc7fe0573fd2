// SPDX-License-Identifier: MIT
/// \file
/// A run, or several side by side, as one HTML page: loss and validation, throughput, loss scale with skipped steps,
/// learning rate, gradient norm, memory, speed of light, policies, numerics, machine.
///
///     ht::run_report run{"amp_bf16"};
///     void on_step(const ht::trainer_state& s) override { run.add(s); run.add_memory(s.seconds, device.memory().usage()); }
///     …
///     std::ofstream("report.html") << ht::report_html({.title = "My run", .runs = {run}});
///
/// The page loads nothing and has no script. A run's memory is limited however many steps it has (curve.hpp), and so is
/// the page's size: less than a megabyte.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <halftone/memory/usage.hpp>
#include <halftone/observe/metrics/step_metrics.hpp>
#include <halftone/observe/profile/speed_of_light.hpp>
#include <halftone/observe/report/bars.hpp>
#include <halftone/policy/table.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What a page shows of one run.
struct run_report {
    std::string name;
    curve loss{}, validation{}, rate{}, scale{}, learning_rate{}, norm{};
    curve memory[memory_kinds] = {};
    std::vector<std::int64_t> skipped_steps{};                         ///< the first 1,000
    std::vector<std::pair<std::string, std::string>> figures{};        ///< lines of the table of results: name, value
    std::vector<light_row> light{};                                    ///< speed of light, the largest saving first
    light_table light_sums{};                                          ///< the sums of speed of light; its rows are not used
    std::vector<policy_row> policies{};
    std::string numerics{};                                            ///< a part of a page, as numerics_body gives it
    std::vector<std::pair<std::string, std::string>> links{};          ///< text, file next to the page

    explicit run_report(std::string run_name = "") : name(std::move(run_name)) {}

    /// The figures after a step.
    void add(const step_metrics& m) {
        const auto step = static_cast<double>(m.step);
        if (m.step_loss != last_loss_ || !is_finite(m.step_loss) || m.step <= 1) loss.add(step, m.step_loss);
        last_loss_ = m.step_loss;
        if (m.tokens_per_second > 0) rate.add(step, m.tokens_per_second);
        scale.add(step, m.loss_scale);
        learning_rate.add(step, m.learning_rate);
        if (m.has_grad_norm()) norm.add(step, m.grad_norm);
        if (m.skipped > skipped_ && skipped_steps.size() < 1000) skipped_steps.push_back(m.step);
        skipped_ = m.skipped;
    }
    /// An evaluation's loss after a step.
    void add_validation(std::int64_t step, double value) { validation.add(static_cast<double>(step), value); }
    /// Bytes in use at a moment of the run.
    void add_memory(double seconds, const memory_usage& usage) {
        for (int k = 0; k < memory_kinds; ++k)
            memory[k].add(seconds, static_cast<double>(usage.live(static_cast<memory_kind>(k))));
    }
    /// The table of a speed_of_light.
    void add_light(const light_table& t) {
        light = t.rows;
        light_sums = t;
        light_sums.rows.clear();
    }

  private:
    double last_loss_ = 0;
    std::int64_t skipped_ = 0;
};

/// What a page shows.
struct report {
    std::string title = "Training report";
    std::vector<std::pair<std::string, std::string>> facts{};  ///< of all runs: machine, commit, arguments
    std::vector<run_report> runs{};
    std::string of_loss = "nats a token", of_rate = "tokens a second";  ///< units
};

namespace detail {

/// Columns of a chart; each has at most four points.
constexpr std::size_t chart_columns = 150;

enum class trend { shown, not_shown };

/// A chart with a line for each run; `of_trend`: with their means in front of what varies.
template <class Of>
chart chart_of_runs(const report& r, const std::string& title, const Of& curve_of, trend of_trend = trend::not_shown) {
    chart c{.title = title};
    for (std::size_t i = 0; i < r.runs.size() && of_trend == trend::shown; ++i) {
        const curve& of = curve_of(r.runs[i]);
        c.lines.push_back({.name = r.runs[i].name, .colour = static_cast<int>(i), .points = of.points(chart_columns), .is_faint = true});
    }
    for (std::size_t i = 0; i < r.runs.size(); ++i) {
        const curve& of = curve_of(r.runs[i]);
        if (of.empty()) continue;
        c.lines.push_back({r.runs[i].name, static_cast<int>(i), of_trend == trend::shown ? of.means(chart_columns / 2) : of.points(chart_columns)});
    }
    return c;
}

/// A line that tells how many values are not in the curves; empty if all are.
inline std::string left_out_of(const report& r) {
    const std::pair<const char*, curve run_report::*> curves[] = {{"loss", &run_report::loss},
                                                                  {"validation loss", &run_report::validation},
                                                                  {"throughput", &run_report::rate},
                                                                  {"loss scale", &run_report::scale},
                                                                  {"learning rate", &run_report::learning_rate},
                                                                  {"gradient norm", &run_report::norm}};
    std::string all;
    for (const run_report& run : r.runs) {
        for (const auto& [name, of] : curves) {
            if (const std::size_t count = (run.*of).not_finite(); count > 0)
                all += (all.empty() ? "" : ", ") + std::to_string(count) + " &times; " + name + " of " + escaped(run.name);
        }
    }
    return all.empty() ? "" : "<p class=\"dim\">Left out of the curves, since not finite: " + all + ".</p>\n";
}

inline std::string charts_of(const report& r) {
    std::string page = "<div class=\"charts\">\n";
    chart loss = chart_of_runs(r, "Loss", [](const run_report& run) -> const curve& { return run.loss; }, trend::shown);
    loss.unit = r.of_loss;
    page += loss.svg();
    chart validation = chart_of_runs(r, "Validation loss", [](const run_report& run) -> const curve& { return run.validation; });
    validation.unit = r.of_loss;
    for (chart_line& l : validation.lines) l.is_dotted = true;
    page += validation.svg();
    chart rate = chart_of_runs(r, "Throughput", [](const run_report& run) -> const curve& { return run.rate; });
    rate.unit = r.of_rate, rate.from_zero = true;
    page += rate.svg();
    chart scale = chart_of_runs(r, "Loss scale", [](const run_report& run) -> const curve& { return run.scale; });
    scale.is_logarithmic = true;
    for (chart_line& l : scale.lines) l.has_steps = true;
    for (const run_report& run : r.runs)
        scale.marks.insert(scale.marks.end(), run.skipped_steps.begin(), run.skipped_steps.end());
    scale.mark_name = "skipped steps";
    page += scale.svg();
    page += chart_of_runs(r, "Learning rate", [](const run_report& run) -> const curve& { return run.learning_rate; }).svg();
    chart norm = chart_of_runs(r, "Gradient norm, before clipping", [](const run_report& run) -> const curve& { return run.norm; }, trend::shown);
    norm.is_logarithmic = true;
    page += norm.svg();
    for (const run_report& run : r.runs) {
        chart memory{.title = r.runs.size() > 1 ? "Memory, " + run.name : "Memory", .of_x = "seconds", .unit = "MiB", .is_stacked = true};
        for (int k = 0; k < memory_kinds; ++k) {
            std::vector<curve_point> points;
            bool is_used = false;
            // Kinds have the same groups, and so the same places, if one point of each is drawn.
            for (const curve_point& p : run.memory[k].greatest(chart_columns)) {
                points.push_back({p.x, p.y / (1 << 20)});
                is_used = is_used || p.y > 0;
            }
            const char* const kind = name(static_cast<memory_kind>(k));
            if (is_used) memory.lines.push_back({.name = kind, .points = std::move(points), .of = kind});
        }
        page += memory.svg();
    }
    return page + "</div>\n";
}

/// The runs' figures: a column for each.
inline std::string figures_table(const report& r) {
    std::vector<std::string> names;
    for (const run_report& run : r.runs) {
        for (const auto& [name, value] : run.figures) {
            if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
        }
    }
    if (names.empty()) return "";
    table lines{{{}}};
    for (const run_report& run : r.runs)
        lines.columns.push_back({run.name, 0, "n words"});  // several figures may stand below each other
    for (const std::string& name : names) {
        std::vector<table_cell> row{name};
        for (const run_report& run : r.runs) {
            const auto found =
                std::find_if(run.figures.rbegin(), run.figures.rend(), [&](const auto& f) { return f.first == name; });
            row.push_back(found == run.figures.rend() ? "" : found->second);
        }
        lines.rows.push_back(std::move(row));
    }
    return "<h2>Results</h2>\n" + lines.html();
}

inline std::string light_section(const run_report& run) {
    if (run.light.empty()) return "";
    const light_table& t = run.light_sums;
    return "<h2>Speed of light, " + escaped(run.name) + "</h2>\n<p>" +
           formatted(
               "A step takes %.3f ms; MFU %.1f%%. The machine's peaks: %.1f GFLOP/s in fp32, %.1f in bf16, %.1f GB/s.",
               1e3 * t.step_seconds, 100 * t.mfu, 1e-9 * t.peaks.of(arithmetic::fp32),
               1e-9 * t.peaks.of(arithmetic::bf16), 1e-9 * t.peaks.bytes) +
           " Sorted by what would be saved if the line ran at its limit.</p>\n" +
           light_lines(run.light).html(25, "smaller lines");
}

inline std::string policies_section(const run_report& run) {
    if (run.policies.empty()) return "";
    table lines{{{"layer"},
                 {"operation", 0, "wide"},
                 {"in"},
                 {"accumulate"},
                 {"out"},
                 {"input grad", 0, "wide"},
                 {"weight grad", 0, "wide"}}};
    for (const policy_row& p : run.policies)
        lines.rows.push_back({p.path, p.op, p.in, p.accumulate, p.out, p.input_grad, p.weight_grad});
    return "<h2>Policy, " + escaped(run.name) + "</h2>\n" + lines.html();
}

}  // namespace detail

/// An HTML page with all of it; it loads nothing from elsewhere.
inline std::string report_html(const report& r) {
    using namespace detail;
    std::string page = drawn_page_begin(r.title);
    page += figures_table(r) + "<h2>Curves</h2>\n" + charts_of(r) + left_out_of(r);
    for (const run_report& run : r.runs) page += light_section(run);
    for (const run_report& run : r.runs) page += policies_section(run);
    for (const run_report& run : r.runs) {
        if (!run.numerics.empty()) page += "<h2>Numerics, " + escaped(run.name) + "</h2>\n" + run.numerics;
        for (const auto& [text, file] : run.links)
            page += "<p><a href=\"" + escaped(file) + "\">" + escaped(text) + "</a></p>\n";
    }
    table facts{{{}, {}}};
    for (const auto& [name, value] : r.facts) facts.rows.push_back({name, value});
    if (!r.facts.empty()) page += "<h2>Machine and arguments</h2>\n" + facts.html();
    return page + "</body>\n</html>\n";
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
