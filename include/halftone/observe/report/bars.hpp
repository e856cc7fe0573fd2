// SPDX-License-Identifier: MIT
/// \file
/// Horizontal bars for pages: rows of stacked parts as inline SVG.
///
///     ht::detail::bar_chart c{.title = "Peaks", .unit = "MiB"};
///     c.rows.push_back({"1", "12.5 MiB, planned 13.0", {{"master", 4.5}, {"activation", 8}}, 13.0});
///     page += c.svg();
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <halftone/observe/report/chart.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A part of a row: its length in the colour of its name.
struct bar_part {
    std::string name;
    double value = 0;
};
/// A row: parts one after another, below a text, with a mark at a value.
struct bar_row {
    std::string name, text;
    std::vector<bar_part> parts{};
    double mark = 0;  ///< 0: none
};
/// Rows of bars with one scale, and a legend.
struct bar_chart {
    std::string title, unit{}, mark_name{};
    std::vector<bar_row> rows{};

    /// A figure with the drawing and its legend; empty without rows.
    std::string svg() const {
        if (rows.empty()) return "";
        constexpr double left = 22, right = 352, height = 42;
        double most = 1e-30;
        for (const bar_row& r : rows) {
            double sum = 0;
            for (const bar_part& p : r.parts) sum += p.value;
            most = std::max({most, sum, r.mark});
        }
        const auto x = [&](double v) { return left + (right - left) * v / most; };
        std::string page = "<figure><figcaption>" + escaped(title) + (unit.empty() ? "" : ", " + escaped(unit)) +
                           "</figcaption>\n<svg class=\"chart bars\" viewBox=\"0 0 360 " + coordinate(height * static_cast<double>(rows.size())) +
                           "\" role=\"img\" aria-label=\"" + escaped(title) + "\">\n";
        std::vector<std::string> names;
        double top = 0;
        for (const bar_row& r : rows) {
            page += "<text class=\"name left\" x=\"0\" y=\"" + coordinate(top + 28) + "\">" + escaped(r.name) + "</text><text class=\"left\" x=\"22\" y=\"" +
                    coordinate(top + 12) + "\">" + escaped(r.text) + "</text>";
            double at = 0;
            for (const bar_part& p : r.parts) {
                if (!(p.value > 0)) continue;
                if (std::find(names.begin(), names.end(), p.name) == names.end()) names.push_back(p.name);
                page += "<rect x=\"" + coordinate(x(at)) + "\" y=\"" + coordinate(top + 17) + "\" width=\"" + coordinate(x(at + p.value) - x(at)) +
                        "\" height=\"14\" style=\"fill:var(--" + p.name + ")\"><title>" + escaped(p.name) + ": " + short_number(p.value) +
                        (unit.empty() ? "" : " " + escaped(unit)) + "</title></rect>";
                at += p.value;
            }
            if (r.mark > 0) page += "<path class=\"mark\" d=\"M" + coordinate(x(r.mark)) + " " + coordinate(top + 14) + "v20\"/>";
            page += "\n";
            top += height;
        }
        page += "</svg>\n<p class=\"key\">";
        for (const std::string& name : names) page += "<span>" + swatch(name) + escaped(name) + "</span> ";
        if (!mark_name.empty()) page += "<span><b class=\"skip\">|</b> " + escaped(mark_name) + "</span>";
        return page + "</p>\n</figure>\n";
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
