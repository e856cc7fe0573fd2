// SPDX-License-Identifier: MIT
/// \file
/// Strips for pages: a histogram in one line, whose columns have a common axis of integers.
///
///     const ht::detail::strip_axis axis{-30, 18};
///     page += axis.ticks() + axis.open("float16") + axis.rectangle(-14, 15, "range") + "</svg>";
#pragma once

#include <algorithm>
#include <string>

#include <halftone/observe/report/table.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The horizontal axis of strips, a column for each integer.
struct strip_axis {
    int first, last;

    int count() const { return last - first + 1; }
    /// Columns from..to, as far as they are on the axis; `type` is a class: in, low, range, part.
    std::string rectangle(int from, int to, const char* type, const std::string& more = "") const {
        from = std::max(from, first), to = std::min(to, last);
        if (from > to) return "";
        return "<rect class=\"" + std::string(type) + "\" x=\"" + std::to_string(from - first) + "\" width=\"" +
               std::to_string(to - from + 1) + "\" height=\"10\"" + more + "/>";
    }
    /// A column of this strength, 0 to 1.
    std::string column(int at, const char* type, double strength) const {
        return rectangle(at, at, type, formatted(" fill-opacity=\"%.2f\"", strength));
    }
    /// A line at the beginning of a column.
    std::string lines(int one, int other) const {
        return "<path class=\"mark\" d=\"M" + std::to_string(one - first) + " 0v10M" + std::to_string(other - first) + " 0v10\"/>";
    }
    /// A strip's beginning; the caller ends it by "</svg>".
    std::string open(const std::string& label, const char* type = "strip") const {
        return "<svg class=\"" + std::string(type) + "\" viewBox=\"0 0 " + std::to_string(count()) +
               " 10\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"" + label + "\">";
    }
    /// The numbers above the strips.
    std::string ticks() const {
        std::string page = "<div class=\"strip-axis\">";
        const int step = count() > 60 ? 16 : 8;
        for (int e = first + 3; e <= last - 2; ++e) {
            if (e % step != 0) continue;
            page += std::string("<span") + (e % (2 * step) != 0 ? " class=\"odd\"" : "") +
                    " style=\"left:" + formatted("%.2f", 100.0 * (e - first) / count()) + "%\">" + std::to_string(e) +
                    "</span>";
        }
        return page + "</div>";
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
