// SPDX-License-Identifier: MIT
/// \file
/// A memory snapshot as one HTML page: a chart of the bytes in use over the events of a run, stacked by kind, which names
/// the block under the pointer; a table of the blocks in use at the peak; a table of those that outlive their step. The page
/// loads nothing, and adapts to light and dark, narrow and wide screens.
///
///     std::ofstream("memory.html") << ht::memory_snapshot_html(history.snapshot(), "amp_bf16, 20 steps");
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <halftone/observe/memory/snapshot.hpp>
#include <halftone/observe/memory/snapshot_json.hpp>
#include <halftone/observe/memory/snapshot_page.hpp>
#include <halftone/observe/report/chart.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// "512 bytes", "6.00 KiB", "96.5 MiB"; rounded as the page's script rounds.
inline std::string size_text(std::size_t bytes) {
    constexpr const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) return std::to_string(bytes) + " bytes";
    auto size = static_cast<double>(bytes);
    int unit = 0;
    for (; size >= 1024 && unit < 4; ++unit) size /= 1024;
    const double parts = size < 10 ? 100 : 10;
    return formatted("%.*f %s", size < 10 ? 2 : 1, std::floor(size * parts + 0.5) / parts, units[unit]);
}

/// Where a block comes from: "linear, forward, layer h.0.mlp.up, step 3".
inline std::string origin_text(const memory_allocation& a) {
    std::string t = *a.operation == 0 ? "" : std::string(a.operation) + ", " + name(a.of_pass);
    if (*a.layer != 0) t += std::string(", layer ") + a.layer;
    if (a.step != 0) t += (t.empty() ? "outside of operations, step " : ", step ") + std::to_string(a.step);
    if (a.step == 0) t += t.empty() ? "outside of steps" : ", outside of steps";
    if (!a.parts.empty()) {
        const std::size_t n = a.parts.size();
        t += "; of " + std::to_string(n) + (n == 1 ? " parameter, " : " parameters, ") + a.parts.front().parameter +
             (n == 1 ? "" : " to " + a.parts.back().parameter);
    }
    return t;
}

/// The bytes in use by kind as a drawing, for browsers without the script.
inline std::string still_chart(const memory_snapshot& s) {
    curve bytes[memory_kinds];
    const auto add = [&](std::int64_t event, const memory_snapshot::by_kind& live) {
        for (std::size_t k = 0; k < live.size(); ++k) bytes[k].add(static_cast<double>(event), static_cast<double>(live[k]));
    };
    memory_snapshot::by_kind live = s.live_at(s.first_event - 1);
    add(s.first_event - 1, live);
    for (const memory_change& c : s.changes) {
        const memory_allocation& a = s.allocations[c.allocation];
        std::size_t& of_kind = live[static_cast<std::size_t>(a.kind)];
        of_kind = c.is_end ? of_kind - a.bytes : of_kind + a.bytes;
        add(c.event, live);
    }
    chart drawing{.title = "Bytes in use", .of_x = "event", .is_stacked = true};
    for (int k = 0; k < memory_kinds; ++k) {
        const std::vector<curve_point> points = bytes[k].greatest(240);
        const bool is_used = std::any_of(points.begin(), points.end(), [](const curve_point& p) { return p.y > 0; });
        const char* const kind = name(static_cast<memory_kind>(k));
        if (is_used) drawing.lines.push_back({.name = kind, .points = points, .of = kind});
    }
    return drawing.svg();
}

inline std::string peak_tables(const memory_snapshot& s) {
    table sums{{{"kind"}, {"bytes", 0, "n"}, {"share", 0, "n"}}},
        largest{{{"bytes", 0, "n"}, {"kind", 0, "k"}, {"made by"}}};
    for (int k = 0; k < memory_kinds; ++k) {
        const std::size_t bytes = s.bytes_at_peak[static_cast<std::size_t>(k)];
        const char* const kind = name(static_cast<memory_kind>(k));
        const double share = static_cast<double>(bytes) / static_cast<double>(s.peak_bytes);
        if (bytes != 0) sums.rows.push_back({{kind, swatch(kind)}, size_text(bytes), formatted("%.1f%%", 100 * share)});
    }
    const std::vector<memory_allocation> all = s.allocations_at(s.peak_event);
    for (std::size_t i = 0; i < std::min<std::size_t>(all.size(), 15); ++i)
        largest.rows.push_back({size_text(all[i].bytes), name(all[i].kind), origin_text(all[i])});
    return "<h2>At the peak</h2>\n<div class=\"sums\">" + sums.html() +
           "</div>\n<h2>The largest blocks at the peak</h2>\n" + largest.html();
}

/// The table of blocks that outlive their step; blocks of one origin share a line.
inline std::string outliving_table(const memory_snapshot& s) {
    struct line {
        std::size_t blocks = 0, bytes = 0;
        std::int64_t first = 0, last = 0;
        std::size_t kept = 0;  ///< bytes in use at the window's end
        memory_allocation example;
    };
    std::map<std::tuple<int, std::string, int, std::string>, line> lines;
    for (const memory_allocation& a : s.outliving()) {
        line& l = lines[{static_cast<int>(a.kind), a.operation, static_cast<int>(a.of_pass), a.layer}];
        l.first = l.blocks == 0 ? a.step : std::min(l.first, a.step);
        l.last = std::max(l.last, a.step);
        ++l.blocks, l.bytes += a.bytes;
        if (a.ended < 0) l.kept += a.bytes;
        l.example = a;
    }
    if (lines.empty()) {
        return "<h2>What outlives its step</h2>\n<p>Nothing: what a step after the first one allocated, it released. "
               "Workspaces do not "
               "count: contexts keep them for later steps.</p>\n";
    }
    table shown{
        {{"blocks", 0, "n"}, {"bytes", 0, "n"}, {"in use at the end", 0, "n wide"}, {"kind", 0, "k"}, {"made by"}}};
    std::vector<line> sorted;
    for (const auto& [key, l] : lines) sorted.push_back(l);
    std::stable_sort(sorted.begin(), sorted.end(), [](const line& a, const line& b) { return a.bytes > b.bytes; });
    for (std::size_t i = 0; i < std::min<std::size_t>(sorted.size(), 50); ++i) {
        line& l = sorted[i];
        l.example.step = l.first;
        std::string from = origin_text(l.example);
        if (l.first != l.last) {
            const std::string one = "step " + std::to_string(l.first);
            from.replace(from.rfind(one), one.size(),
                         "steps " + std::to_string(l.first) + " to " + std::to_string(l.last));
        }
        shown.rows.push_back(
            {std::to_string(l.blocks), size_text(l.bytes), size_text(l.kept), name(l.example.kind), from});
    }
    return "<h2>What outlives its step</h2>\n<p>Blocks that a step after the first one allocated and did not release: "
           "a leak, if "
           "their number grows with the steps.</p>\n" +
           shown.html();
}

/// The first sentences: the peak, the allocation that reached it, and alarms.
inline std::string snapshot_summary(const memory_snapshot& s) {
    std::string at = "before the first event";
    for (const memory_change& c : s.changes) {
        if (c.event == s.peak_event)
            at = "after event " + std::to_string(c.event) + ": " + origin_text(s.allocations[c.allocation]);
    }
    std::string page = "<p>Peak: <b>" + size_text(s.peak_bytes) + "</b> (" + std::to_string(s.peak_bytes) + " bytes) " +
                       escaped(at) + ".";
    if (s.dropped != 0) {
        page += " The history keeps " + std::to_string(s.events - s.first_event) + " events; " +
                std::to_string(s.dropped) + " earlier ones were dropped, and this page begins with event " +
                std::to_string(s.first_event) + ".";
    }
    page += "</p>\n";
    for (const memory_allocation& r : s.refused) {
        page += "<p class=\"alarm\"><b>Out of memory</b> at event " + std::to_string(r.began) + ": " +
                size_text(r.bytes) + " for " + name(r.kind) + " were requested by " + escaped(origin_text(r)) +
                ".</p>\n";
    }
    const std::vector<memory_allocation> leaks = s.outliving();
    if (!leaks.empty()) {
        std::size_t bytes = 0;
        for (const memory_allocation& a : leaks) bytes += a.bytes;
        page += "<p class=\"alarm\"><b>" + std::to_string(leaks.size()) + " blocks outlive their step</b>, " +
                size_text(bytes) + " together: see <a href=\"#outliving\">what outlives its step</a>.</p>\n";
    }
    return page;
}

}  // namespace detail

/// An HTML page with the timeline of a snapshot; it loads nothing from elsewhere.
inline std::string memory_snapshot_html(const memory_snapshot& s, const std::string& title) {
    using namespace detail;
    std::string page = drawn_page_begin(title, snapshot_style) + snapshot_summary(s);
    page +=
        "<div class=\"moves\"><button data-move=\"in\" aria-label=\"zoom in\">+</button><button data-move=\"out\" "
        "aria-label=\"zoom "
        "out\">&minus;</button><button data-move=\"left\" aria-label=\"earlier\">&#9664;</button><button "
        "data-move=\"right\" "
        "aria-label=\"later\">&#9654;</button><button data-move=\"all\">all</button><button "
        "data-move=\"peak\">peak</button>"
        "<select id=\"axis\" aria-label=\"horizontal axis\"><option value=\"event\">by event</option><option "
        "value=\"time\">by "
        "time</option></select></div>\n<canvas id=\"timeline\" tabindex=\"0\" role=\"img\" aria-label=\"bytes in use "
        "over the events "
        "of the run, stacked by kind\"></canvas>\n<ul class=\"legend\">\n";
    for (const char* const kind :
         {"master", "copy", "moment", "gradient", "other", "workspace", "outlived", "activation"}) {
        page += "<li>" + swatch(kind) + "<span>" + (kind == std::string("outlived") ? "outlives its step" : kind) +
                "</span><span id=\"bytes-" + kind + "\"></span></li>\n";
    }
    page += "</ul>\n<p class=\"dim\">Below the chart: ";
    for (int p = 0; p < passes; ++p)
        page += std::string(p == 0 ? "" : ", ") + swatch(name(static_cast<pass>(p))) + " " + name(static_cast<pass>(p));
    page +=
        ". Point at a block, or tap it, to see where it comes from; drag to enlarge; the arrow keys go from event to "
        "event.</p>\n<div "
        "id=\"block\" aria-live=\"polite\"></div>\n<noscript><p>The chart needs a browser with JavaScript; here is "
        "what it shows at first.</p>\n" +
        still_chart(s) + "</noscript>\n" + peak_tables(s) + "<div id=\"outliving\">\n" + outliving_table(s) +
        "</div>\n<script type=\"application/json\" id=\"data\">" + memory_snapshot_json(s) + "</script>\n<script>" +
        snapshot_script_data + snapshot_script_drawing + snapshot_script_pointer;
    return page + "</script>\n</body>\n</html>\n";
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
