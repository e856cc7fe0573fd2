// SPDX-License-Identifier: MIT
/// \file
/// tradeoff.html: the curve of step time over peak memory, the peaks by kind with the planned ones, and the table. One
/// page that loads nothing, without a script.
#include <algorithm>

#include <halftone/observe/report/bars.hpp>
#include <halftone/observe/report/table.hpp>

#include "report.hpp"

namespace ht = halftone;
using ht::detail::formatted;

namespace {

constexpr const char* style = R"(
figure{max-width:38rem;margin:.5rem 0}ol{padding-left:1.6rem;margin:.3rem 0}
@media (max-width:600px){.rows table,.rows tbody{display:block}.rows tr:first-child{display:none}
.rows tr{display:grid;grid-template-columns:1fr 1fr;padding:.5rem 0;border-top:1px solid var(--line)}
.rows table.data td{text-align:left;padding:1px 0}.rows td:first-child{grid-column:1/3;font-weight:600}
.rows td[title]::before{content:attr(title) " ";color:var(--dim)}}
)";

constexpr ht::memory_kind shown_kinds[] = {ht::memory_kind::master,   ht::memory_kind::copy,       ht::memory_kind::moment,
                                           ht::memory_kind::gradient, ht::memory_kind::activation, ht::memory_kind::workspace,
                                           ht::memory_kind::other};

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

/// Step time over peak memory: a filled point as measured, a ring at the planned peak.
std::string curve(const std::vector<finished_row>& rows) {
    ht::detail::chart c{.title = "ms a step", .of_x = "peak memory, MiB", .from_zero = true, .x_from_zero = true};
    ht::detail::chart_line line{.name = "rows", .is_dashed = true};
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const row_result& r = rows[i].result;
        const double peak = mebibytes(r.measured.peak), planned = mebibytes(r.planned.peak), ms = r.training.step_ms;
        c.points.push_back({peak, ms, std::to_string(i + 1),
                            rows[i].what.name + formatted(": %.1f MiB (planned %.1f), %.2f ms", peak, planned, ms),
                            planned});
        line.points.push_back({peak, ms});
    }
    std::sort(line.points.begin(), line.points.end(), [](const auto& a, const auto& b) { return a.x < b.x; });
    c.lines.push_back(std::move(line));
    return c.svg();
}

/// For each row the planned peak, and the measured peaks of the kinds of memory.
std::string bars(const std::vector<finished_row>& rows) {
    ht::detail::bar_chart c{.title = "Peaks by kind of memory", .unit = "MiB", .mark_name = "planned peak of all"};
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const row_result& r = rows[i].result;
        const double planned = mebibytes(r.planned.peak);
        ht::detail::bar_row row{std::to_string(i + 1),
                                formatted("%.1f MiB, planned %.1f", mebibytes(r.measured.peak), planned),
                                {},
                                planned};
        for (const ht::memory_kind k : shown_kinds)
            row.parts.push_back({ht::name(k), mebibytes(r.measured.by_kind[static_cast<std::size_t>(k)])});
        c.rows.push_back(std::move(row));
    }
    return c.svg();
}

std::string table(const std::vector<finished_row>& rows) {
    const double whole = mebibytes(rows.front().result.measured.peak);
    std::string html =
        "<div class=\"scroll rows\"><table class=\"data\">\n<tr><th></th><th class=\"n\">planned MiB</th><th class=\"n\">measured MiB</th>"
        "<th class=\"n\">of the first</th><th class=\"n\">ms a step</th><th class=\"n\">train loss</th><th class=\"n\">validation loss</th>"
        "<th class=\"n\">accuracy</th></tr>\n";
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const row_result& r = rows[i].result;
        html += formatted("<tr><td>%zu. ", i + 1) + ht::detail::escaped(rows[i].what.name) + "</td>";
        html += formatted(
            "<td class=\"n\" title=\"planned MiB\">%.2f</td><td class=\"n\" title=\"measured MiB\">%.2f</td><td "
            "class=\"n\" title=\"of the first\">%.2f</td>",
            mebibytes(r.planned.peak), mebibytes(r.measured.peak), mebibytes(r.measured.peak) / whole);
        html += formatted("<td class=\"n\" title=\"ms a step\">%.2f</td><td class=\"n\" title=\"train loss\">%.4f</td>",
                          r.training.step_ms, r.training.train_loss);
        html += formatted(
            "<td class=\"n\" title=\"validation loss\">%.4f</td><td class=\"n\" title=\"accuracy\">%.1f%%</td></tr>\n",
            r.validation_loss, 100 * r.accuracy);
    }
    return html + "</table></div>\n";
}

}  // namespace

std::string page(const options& o, const surroundings& around, const std::vector<finished_row>& rows) {
    std::string html = ht::detail::drawn_page_begin("Memory, time and loss", style);
    html +=
        "<p>A classifier of texts, " +
        formatted("%lld blocks of width %lld, %zu parameters, %lld steps of %lld texts of at most %lld words, ",
                  static_cast<long long>(o.layers), static_cast<long long>(o.width), rows.front().result.parameters,
                  static_cast<long long>(o.steps), static_cast<long long>(o.batch), static_cast<long long>(o.length));
    html += "trained in turns on one machine (" + ht::detail::escaped(around.device) +
            "). Texts: " + ht::detail::escaped(around.text) +
            formatted("; %lld to train on, %lld held out.</p>\n", static_cast<long long>(around.training),
                      static_cast<long long>(around.held_out));
    html += "<h2>Step time over peak memory</h2>\n" + curve(rows);
    html += "<p>A point is what was measured, the ring around it the peak that the plan told before the run. Times are medians.</p>\n<ol>";
    for (const finished_row& r : rows) html += "<li>" + ht::detail::escaped(r.what.name) + "</li>";
    html += "</ol>\n<h2>What the memory is for</h2>\n" + bars(rows);
    html += "<p>The kinds have their peaks at different times, so that their sum is more than the peak of all.</p>\n";
    return html + "<h2>All numbers</h2>\n" + table(rows) + "</body>\n</html>\n";
}
