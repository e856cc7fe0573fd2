// SPDX-License-Identifier: MIT
/// \file
/// tradeoff.html: the curve of step time over peak memory, the peaks by kind with the planned ones, and the table. One
/// page that loads nothing; its drawings are SVG, so that it needs no script.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include <halftone/observe/metrics/page.hpp>

#include "report.hpp"

namespace ht = halftone;

namespace {

constexpr const char* style = R"(
:root{--planned:#c2410c;--master:#1f5fa8;--copy:#7fb0e3;--moment:#2f7d6b;--gradient:#8b62b8;--activation:#d99a2b;--workspace:#9aa1a8;--other:#a9745a}
@media (prefers-color-scheme:dark){:root{--planned:#fb923c;--master:#4a8ad6;--copy:#9cc4f0;--moment:#4da892;--gradient:#a985d6;--activation:#d99a2b;--workspace:#7b838b;--other:#c08e72}}
svg{display:block;width:100%;max-width:38rem;height:auto;margin:.5rem 0}
svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .dim{fill:var(--dim)}
.axis{stroke:var(--line);stroke-width:1}.grid{stroke:var(--strip);stroke-width:1}
.curve{fill:none;stroke:var(--in);stroke-width:1.5;stroke-dasharray:4 3}
.point{fill:var(--in)}.ring{fill:none;stroke:var(--planned);stroke-width:2}
svg text.number{fill:var(--page);font-weight:700;text-anchor:middle}
ol{padding-left:1.6rem;margin:.3rem 0}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;list-style:none;padding:0;font-size:13px}
.legend li{display:flex;align-items:center;gap:.4rem}i{display:inline-block;width:.8em;height:.8em;flex:none;border-radius:2px}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px}
th,td{padding:4px 12px 4px 0;text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
th:first-child,td:first-child{text-align:left}tr+tr td{border-top:1px solid var(--strip)}
@media (max-width:600px){body{padding:.6rem}.scroll table,.scroll tbody{display:block}.scroll tr:first-child{display:none}
.scroll tr{display:grid;grid-template-columns:1fr 1fr;padding:.5rem 0;border-top:1px solid var(--line)}
.scroll tr+tr td{border:0}.scroll td{text-align:left;padding:1px 0}.scroll td:first-child{grid-column:1/3;font-weight:600}
.scroll td[title]::before{content:attr(title) " ";color:var(--dim)}}
)";

struct shown_kind {
    ht::memory_kind kind;
    const char* colour;  ///< a variable of the style
};
constexpr shown_kind shown_kinds[] = {{ht::memory_kind::master, "master"},         {ht::memory_kind::copy, "copy"},
                                      {ht::memory_kind::moment, "moment"},         {ht::memory_kind::gradient, "gradient"},
                                      {ht::memory_kind::activation, "activation"}, {ht::memory_kind::workspace, "workspace"},
                                      {ht::memory_kind::other, "other"}};

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

template <class... Values>
std::string text(const char* format, Values... values) {
    char line[512];
    std::snprintf(line, sizeof line, format, values...);
    return line;
}

/// A round distance between marks of an axis up to `most`: about four of them.
double mark_distance(double most) {
    const double power = std::pow(10.0, std::floor(std::log10(most / 4)));
    const double n = most / 4 / power;
    return power * (n < 1.5 ? 1 : n < 3.5 ? 2 : n < 7.5 ? 5 : 10);
}

/// Step time over peak memory: a filled point as measured, a ring at the planned peak.
std::string curve(const std::vector<finished_row>& rows) {
    constexpr double left = 46, right = 392, top = 14, bottom = 236;
    double most_memory = 1e-9, most_time = 1e-9;
    for (const finished_row& r : rows) {
        most_memory = std::max({most_memory, mebibytes(r.result.measured.peak), mebibytes(r.result.planned.peak)});
        most_time = std::max(most_time, r.result.training.step_ms);
    }
    most_memory *= 1.1, most_time *= 1.15;
    const auto x = [&](double mib) { return left + (right - left) * mib / most_memory; };
    const auto y = [&](double ms) { return bottom - (bottom - top) * ms / most_time; };
    std::string svg = "<svg viewBox=\"0 0 400 276\" role=\"img\" aria-label=\"Step time over peak memory\">\n";
    const double wide = mark_distance(most_memory), high = mark_distance(most_time);
    for (double mark = 0; mark <= most_memory; mark += wide) {
        svg += text("<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\"/>", x(mark), x(mark), top, bottom);
        svg += text("<text class=\"dim\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%g</text>\n", x(mark), bottom + 15, mark);
    }
    for (double mark = 0; mark <= most_time; mark += high) {
        svg += text("<line class=\"grid\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>", left, right, y(mark), y(mark));
        svg += text("<text class=\"dim\" x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", left - 6, y(mark) + 4, mark);
    }
    svg += text("<path class=\"axis\" fill=\"none\" d=\"M%.0f %.0fV%.0fH%.0f\"/>", left, top, bottom, right);
    svg += text("<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"end\">peak memory, MiB</text>", right, bottom + 33);
    svg += text("<text x=\"%.0f\" y=\"%.0f\">ms a step</text>\n", left + 6, top + 2);
    std::vector<const finished_row*> by_memory;
    for (const finished_row& r : rows) by_memory.push_back(&r);
    std::sort(by_memory.begin(), by_memory.end(), [](const finished_row* a, const finished_row* b) {
        return a->result.measured.peak < b->result.measured.peak;
    });
    svg += "<polyline class=\"curve\" points=\"";
    for (const finished_row* r : by_memory)
        svg += text("%.1f,%.1f ", x(mebibytes(r->result.measured.peak)), y(r->result.training.step_ms));
    svg += "\"/>\n";
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const row_result& r = rows[i].result;
        const double at = x(mebibytes(r.measured.peak)), height = y(r.training.step_ms);
        svg += "<g><title>" + ht::detail::escaped(rows[i].what.name) +
               text(": %.1f MiB (planned %.1f), %.2f ms</title>", mebibytes(r.measured.peak), mebibytes(r.planned.peak), r.training.step_ms);
        svg += text("<circle class=\"ring\" cx=\"%.1f\" cy=\"%.1f\" r=\"11.5\"/>", x(mebibytes(r.planned.peak)), height);
        svg += text("<circle class=\"point\" cx=\"%.1f\" cy=\"%.1f\" r=\"8.5\"/>", at, height);
        svg += text("<text class=\"number\" x=\"%.1f\" y=\"%.1f\">%zu</text></g>\n", at, height + 4.2, i + 1);
    }
    return svg + "</svg>\n";
}

/// For each row the planned peak, and below it the measured peaks of the kinds of memory.
std::string bars(const std::vector<finished_row>& rows) {
    constexpr double left = 22, right = 392, row_height = 50;
    double most = 1e-9;
    for (const finished_row& r : rows) {
        double sum = 0;
        for (const shown_kind& k : shown_kinds) sum += mebibytes(r.result.measured.by_kind[static_cast<std::size_t>(k.kind)]);
        most = std::max({most, sum, mebibytes(r.result.planned.peak)});
    }
    const auto x = [&](double mib) { return (right - left) * mib / most; };
    std::string svg = text("<svg viewBox=\"0 0 400 %.0f\" role=\"img\" aria-label=\"Peaks by kind of memory\">\n",
                           row_height * static_cast<double>(rows.size()));
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const row_result& r = rows[i].result;
        const double top = row_height * static_cast<double>(i);
        svg += text("<text x=\"0\" y=\"%.0f\">%zu</text>", top + 29, i + 1);
        svg += text("<text class=\"dim\" x=\"%.0f\" y=\"%.0f\">%.1f MiB, planned %.1f</text>", left, top + 12,
                    mebibytes(r.measured.peak), mebibytes(r.planned.peak));
        double at = left;
        for (const shown_kind& k : shown_kinds) {
            const double mib = mebibytes(r.measured.by_kind[static_cast<std::size_t>(k.kind)]);
            if (mib == 0) continue;
            svg += text("<rect x=\"%.2f\" y=\"%.0f\" width=\"%.2f\" height=\"16\" fill=\"var(--%s)\"><title>%s: %.1f MiB</title></rect>",
                        at, top + 17, x(mib), k.colour, ht::name(k.kind), mib);
            at += x(mib);
        }
        svg += text("<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\" stroke=\"var(--planned)\" stroke-width=\"2\"/>\n",
                    left + x(mebibytes(r.planned.peak)), left + x(mebibytes(r.planned.peak)), top + 14, top + 36);
    }
    svg += "</svg>\n<ul class=\"legend\">";
    for (const shown_kind& k : shown_kinds)
        svg += text("<li><i style=\"background:var(--%s)\"></i>%s</li>", k.colour, ht::name(k.kind));
    return svg + "<li><i style=\"background:var(--planned);width:3px\"></i>planned peak of all</li></ul>\n";
}

std::string table(const std::vector<finished_row>& rows) {
    const double whole = mebibytes(rows.front().result.measured.peak);
    std::string html =
        "<div class=\"scroll\"><table>\n<tr><th></th><th>planned MiB</th><th>measured MiB</th><th>of the first</th>"
        "<th>ms a step</th><th>train loss</th><th>validation loss</th><th>accuracy</th></tr>\n";
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const row_result& r = rows[i].result;
        html += text("<tr><td>%zu. ", i + 1) + ht::detail::escaped(rows[i].what.name) + "</td>";
        html += text("<td title=\"planned MiB\">%.2f</td><td title=\"measured MiB\">%.2f</td><td title=\"of the first\">%.2f</td>",
                     mebibytes(r.planned.peak), mebibytes(r.measured.peak), mebibytes(r.measured.peak) / whole);
        html += text("<td title=\"ms a step\">%.2f</td><td title=\"train loss\">%.4f</td>", r.training.step_ms, r.training.train_loss);
        html += text("<td title=\"validation loss\">%.4f</td><td title=\"accuracy\">%.1f%%</td></tr>\n", r.validation_loss,
                     100 * r.accuracy);
    }
    return html + "</table></div>\n";
}

}  // namespace

std::string page(const options& o, const surroundings& around, const std::vector<finished_row>& rows) {
    std::string html = ht::detail::page_begin("Memory, time and loss", style);
    html += "<p>A classifier of texts, " + text("%lld blocks of width %lld, %zu parameters, %lld steps of %lld texts of at most %lld words, ",
                                                static_cast<long long>(o.layers), static_cast<long long>(o.width),
                                                rows.front().result.parameters, static_cast<long long>(o.steps),
                                                static_cast<long long>(o.batch), static_cast<long long>(o.length));
    html += "trained in turns on one machine (" + ht::detail::escaped(around.device) + "). Texts: " + ht::detail::escaped(around.text) +
            text("; %lld to train on, %lld held out.</p>\n", static_cast<long long>(around.training),
                 static_cast<long long>(around.held_out));
    html += "<h2>Step time over peak memory</h2>\n" + curve(rows);
    html += "<p>A point is what was measured, the ring around it the peak that the plan told before the run. Times are medians.</p>\n<ol>";
    for (const finished_row& r : rows) html += "<li>" + ht::detail::escaped(r.what.name) + "</li>";
    html += "</ol>\n<h2>What the memory is for</h2>\n" + bars(rows);
    html += "<p>The kinds have their peaks at different times, so that their sum is more than the peak of all.</p>\n";
    return html + "<h2>All numbers</h2>\n" + table(rows) + "</body>\n</html>\n";
}
