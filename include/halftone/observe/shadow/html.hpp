// SPDX-License-Identifier: MIT
/// \file
/// A shadow run's report as one HTML page: for each tensor how much of the difference that rounding explains it has, those
/// beyond it first. The page loads nothing, and has no script.
///
///     std::ofstream("shadow.html") << ht::shadow_html(report, "amp_fp16, step 100");
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <halftone/observe/report/chart.hpp>
#include <halftone/observe/shadow/report.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The largest ratio to the bound, tensor after tensor, as the forward and the backward pass made them.
inline chart shadow_chart(const shadow_report& report) {
    chart c{.title = "Largest difference, as a fraction of what rounding explains", .of_x = "tensor, in the order of the run",
            .is_logarithmic = true};
    chart_line within{.name = "within its bound", .colour = 0}, beyond{.name = "beyond its bound", .colour = 1};
    curve all(600), high(600);
    for (std::size_t i = 0; i < report.rows.size(); ++i) {
        const double ratio = std::min(report.rows[i].ratio, 1e6);  // of one that is infinite
        all.add(static_cast<double>(i), std::max(ratio, 1e-6));
        if (report.rows[i].diverges()) high.add(static_cast<double>(i), ratio);
    }
    within.points = all.points(300), within.is_dotted = all.points(300).size() < 120;
    beyond.points = high.points(150), beyond.is_dotted = true;
    c.lines.push_back(std::move(within));
    if (!high.empty()) c.lines.push_back(std::move(beyond));
    return c;
}

}  // namespace detail

/// An HTML page with the tensors of a shadow run, those with the largest ratio to their bound first.
inline std::string shadow_html(const shadow_report& report, const std::string& title) {
    using namespace detail;
    std::string page = drawn_page_begin(title);
    const shadow_row* const first = report.first();
    page += "<p>" + (first == nullptr ? std::string("No tensor is beyond its bound.") : "The first: " + escaped(first->text()) + ".") + "</p>\n";
    page += shadow_chart(report).svg();
    std::vector<const shadow_row*> rows;
    for (const shadow_row& r : report.rows) rows.push_back(&r);
    std::stable_sort(rows.begin(), rows.end(), [](const shadow_row* a, const shadow_row* b) { return a->ratio > b->ratio; });
    table lines = shadow_table();
    for (const shadow_row* r : rows) lines.rows.push_back(shadow_cells(*r));
    return page + "<h2>Tensors</h2>\n" + lines.html(400) + "</body>\n</html>\n";
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
