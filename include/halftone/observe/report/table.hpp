// SPDX-License-Identifier: MIT
/// \file
/// A table that is printed as text and drawn on pages, and how numbers are written in both.
///
///     ht::detail::table t{{{"layer", -20}, {"type", -8, "wide"}, {"values", 9, "n"}}};
///     t.rows.push_back({"h.0.mlp", "bfloat16", "4096"});
///     out << t.text();
///     page += t.html();
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <halftone/observe/report/style.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Numbers as printf writes them, at most 255 characters: formatted("%.3f ms", 0.25).
template <class... Values>
std::string formatted(const char* format, Values... values) {
    char text[256];
    std::snprintf(text, sizeof text, format, values...);
    return text;
}
/// "3.1%", "0.012%", "1e-06%".
inline std::string percent_text(double share) {
    return formatted(share == 0 || share >= 0.1 ? "%.0f%%" : "%.2g%%", 100 * share);
}
/// "65472", "0.0123".
inline std::string number_text(double x) { return formatted(x >= 100 && x < 1e7 ? "%.0f" : "%.3g", x); }

/// A bar of this share of its place, 0 to 1.
inline std::string share_bar(double share) {
    return "<span class=\"bar\"><i style=\"width:" + formatted("%.0f%%", 100 * std::clamp(share, 0.0, 1.0)) +
           "\"></i></span>";
}

/// A column of a table.
struct table_column {
    std::string title{};
    int width = 0;          ///< when printed; negative: text begins at the left; 0: the column is on pages alone
    const char* type = "";  ///< class on pages, "n": numbers, "wide": not on narrow screens; nullptr: printed alone
};
/// A cell of a table.
struct table_cell {
    std::string text;
    std::string mark;  ///< on pages in front of the text, as markup: a bar, a square of a colour

    table_cell(std::string t, std::string m = "") : text(std::move(t)), mark(std::move(m)) {}
    table_cell(const char* t) : text(t) {}
};
/// Rows with a cell for each column; the last ones may be left out. Without titles there is no line of them.
struct table {
    std::vector<table_column> columns;
    std::vector<std::vector<table_cell>> rows{};

    /// A line for the titles and for each row, padded to the widths of the columns.
    std::string text() const {
        std::string all = line([&](std::size_t c) { return columns[c].title; }, columns.size());
        for (const auto& row : rows) all += line([&](std::size_t c) { return row[c].text; }, row.size());
        return all;
    }
    /// The first `most` rows as markup, and a line that tells how many others there are.
    std::string html(std::size_t most = SIZE_MAX, const char* others = "others") const {
        std::string page = "<div class=\"scroll\"><table class=\"data\">";
        if (std::any_of(columns.begin(), columns.end(), [](const table_column& c) { return !c.title.empty(); }))
            page += markup(
                "th", [&](std::size_t c) { return escaped(columns[c].title); }, columns.size());
        for (std::size_t i = 0; i < std::min(rows.size(), most); ++i)
            page += markup(
                "td", [&](std::size_t c) { return rows[i][c].mark + escaped(rows[i][c].text); }, rows[i].size());
        page += "</table></div>\n";
        if (rows.size() <= most) return page;
        return page + "<p class=\"dim\">" + std::to_string(rows.size() - most) + " " + others + " are left out.</p>\n";
    }

  private:
    template <class Text>
    std::string line(const Text& text_of, std::size_t cells) const {
        std::string all;
        for (std::size_t c = 0; c < cells; ++c) {
            if (columns[c].width == 0) continue;
            const std::string text = text_of(c);
            const auto width = static_cast<std::size_t>(std::abs(columns[c].width));
            const std::string room(width - std::min(width, text.size()), ' ');
            all += (all.empty() ? "" : " ") + (columns[c].width < 0 ? text + room : room + text);
        }
        return all.erase(all.find_last_not_of(' ') + 1) + '\n';
    }
    template <class Text>
    std::string markup(const std::string& tag, const Text& text_of, std::size_t cells) const {
        std::string page = "<tr>";
        for (std::size_t c = 0; c < cells; ++c) {
            const char* const type = columns[c].type;
            if (type == nullptr) continue;
            page += "<" + tag + (*type == 0 ? "" : " class=\"" + std::string(type) + "\"") + ">" + text_of(c) + "</" +
                    tag + ">";
        }
        return page + "</tr>\n";
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
