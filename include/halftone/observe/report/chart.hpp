// SPDX-License-Identifier: MIT
/// \file
/// Drawings for pages, as inline SVG without a script: lines, steps, filled bands, marks, numbered points. They have the
/// page's colours in light and dark (style.hpp), and are as wide as the place that they are put in. bars.hpp has horizontal
/// bars, strip.hpp histograms in a line.
///
///     ht::detail::chart c{.title = "Loss", .of_x = "step"};
///     c.lines.push_back({"amp_bf16", 0, curve.points(240)});
///     page += c.svg();
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <halftone/observe/report/curve.hpp>
#include <halftone/observe/report/table.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A number for people: "12", "0.25", "12.5k", "3.2M", "1e-05".
inline std::string short_number(double v) {
    const double size = std::fabs(v);
    const char* const unit = size >= 1e9 && size < 1e12 ? "G" : size >= 1e6 && size < 1e12 ? "M" : size >= 1e4 && size < 1e12 ? "k" : "";
    const double each = *unit == 'G' ? 1e9 : *unit == 'M' ? 1e6 : *unit == 'k' ? 1e3 : 1;
    return formatted("%.4g%s", v / each, unit);
}
/// A coordinate, to a tenth.
inline std::string coordinate(double v) {
    std::string s = formatted("%.1f", v);
    if (s.ends_with(".0")) s.resize(s.size() - 2);
    return s == "-0" ? "0" : s;
}

/// Round numbers from at most `least` to at least `most`, about `count` of them.
inline std::vector<double> ticks_between(double least, double most, int count) {
    const double rough = (most - least) / count;
    if (!(rough > 0)) return {least};
    const double power = std::pow(10.0, std::floor(std::log10(rough))), part = rough / power;
    const double each = power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
    std::vector<double> all;
    for (double at = std::ceil(least / each - 1e-9); at * each <= most + 1e-9 * each; ++at) all.push_back(at * each == 0 ? 0 : at * each);
    return all;
}

/// Round numbers of a logarithmic axis from 10^least to 10^most: powers of ten, with their doubles and halves where there
/// are few, or every n-th power.
inline std::vector<double> powers_between(double least, double most) {
    std::vector<double> all;
    const double decades = most - least, each = decades > 5 ? std::ceil(decades / 5) : 1;
    for (double k = std::floor(least); k <= most; ++k) {
        if (std::fmod(k, each) != 0) continue;
        for (const double digit : {1.0, 2.0, 5.0}) {
            const double at = k + std::log10(digit);
            if ((digit == 1 || decades < 2) && at >= least && at <= most) all.push_back(digit * std::pow(10.0, k));
        }
    }
    return all;
}

/// Powers of two from 2^least to 2^most, at most seven of them.
inline std::vector<double> powers_of_two_between(double least, double most) {
    std::vector<double> all;
    const double each = std::max(1.0, std::ceil((most - least) / 6));
    for (double k = std::ceil(least); k <= most; k += each) all.push_back(std::exp2(k));
    return all;
}

/// A line of a chart.
struct chart_line {
    std::string name;
    int colour = 0;                    ///< 0 to 7: the page's --s0 to --s7; not used if `of` names one
    std::vector<curve_point> points{};
    bool is_dotted = false;            ///< shown as points joined by a dashed line
    bool has_steps = false;            ///< constant between points
    bool is_faint = false;             ///< behind a line of its trend, and not in the legend
    bool is_dashed = false;            ///< dashed without points
    std::string of{};                  ///< a colour by its name, "master"; empty: `colour`

    std::string paint() const { return "var(--" + (of.empty() ? "s" + std::to_string(colour % 8) : of) + ")"; }
};

/// A point with a number in it, and where it was expected.
struct chart_point {
    double x = 0, y = 0;
    std::string label, text;           ///< in the point; for the pointer
    double ring = 0;                   ///< x of a ring at the same height; 0: none
};

/// A chart of lines over one axis.
struct chart {
    std::string title, of_x = "step", unit{};
    bool is_logarithmic = false;       ///< along y; points of 0 or less are left out
    bool has_powers_of_two = false;    ///< x is logarithmic, with powers of two below it; all x are more than 0
    bool from_zero = false;            ///< y begins at 0
    bool x_from_zero = false;          ///< x begins at 0
    bool is_stacked = false;           ///< lines are bands on top of one another, with points at the same x
    std::vector<chart_line> lines{};
    std::vector<double> marks{};       ///< values of x that are marked at the bottom
    std::string mark_name{};
    std::vector<chart_point> points{};

    /// A figure with the drawing and its legend; empty if there is nothing to draw.
    std::string svg() const;
};

/// Draws a chart.
class chart_drawing {
  public:
    explicit chart_drawing(const chart& c) : c_(c) { range_of_axes(); }

    std::string svg() const {
        if (!(x1_ >= x0_) || !(y1_ >= y0_)) return "";
        std::string page = "<figure><figcaption>" + escaped(c_.title) + (c_.unit.empty() ? "" : ", " + escaped(c_.unit)) +
                           "</figcaption>\n<svg class=\"chart\" viewBox=\"0 0 360 203\" role=\"img\" aria-label=\"" +
                           escaped(c_.title) + "\">\n";
        page += axes();
        c_.is_stacked ? draw_bands(page) : draw_lines(page);
        draw_points(page);
        for (const double m : c_.marks) {
            const std::string at = coordinate(x(m));
            page += "<path class=\"mark\" d=\"M" + at + " 172v-7l-2.5 -4h5l-2.5 4\"/>\n";
        }
        return page + "</svg>\n" + legend() + "</figure>\n";
    }

  private:
    static constexpr double left = 46, right = 352, top = 8, bottom = 172;

    double height(double v) const { return c_.is_logarithmic ? std::log10(v) : v; }
    bool is_shown(const curve_point& p) const { return !c_.is_logarithmic || p.y > 0; }
    double along(double v) const { return c_.has_powers_of_two ? std::log2(v) : v; }
    double x(double v) const { return left + (x1_ == x0_ ? 0.5 : (along(v) - x0_) / (x1_ - x0_)) * (right - left); }
    double y(double v) const { return bottom - (y1_ == y0_ ? 0.5 : (height(v) - y0_) / (y1_ - y0_)) * (bottom - top); }

    void range_of_axes() {
        x0_ = y0_ = HUGE_VAL, x1_ = y1_ = -HUGE_VAL;
        std::vector<double> sums;
        for (const chart_line& l : c_.lines) {
            sums.resize(std::max(sums.size(), l.points.size()));
            for (std::size_t i = 0; i < l.points.size(); ++i) {
                const curve_point& p = l.points[i];
                if (!is_shown(p)) continue;
                sums[i] += p.y;
                const double h = c_.is_stacked ? sums[i] : height(p.y);
                x0_ = std::min(x0_, along(p.x)), x1_ = std::max(x1_, along(p.x)), y0_ = std::min(y0_, h), y1_ = std::max(y1_, h);
            }
        }
        for (const chart_point& p : c_.points) {
            const double ring = p.ring == 0 ? p.x : p.ring;
            x0_ = std::min({x0_, p.x, ring}), x1_ = std::max({x1_, p.x, ring}), y0_ = std::min(y0_, p.y), y1_ = std::max(y1_, p.y);
        }
        if (!c_.points.empty() && x1_ >= x0_) {  // so that circles stay inside
            const double room = 0.06 * (x1_ > x0_ ? x1_ - x0_ : std::fabs(x1_));
            x0_ -= room, x1_ += room, y1_ += 0.1 * std::fabs(y1_);
        }
        if (c_.x_from_zero) x0_ = 0, x1_ = std::max(x1_, x0_);
        if (c_.from_zero || c_.is_stacked) y0_ = 0, y1_ = std::max(y1_, y0_);
        if (y1_ >= y0_) {
            const double room = y1_ > y0_ ? 0.04 * (y1_ - y0_) : std::max(0.05 * std::fabs(y1_), 1e-12);
            y1_ += room;
            if (!(c_.from_zero || c_.is_stacked)) y0_ -= room;
        }
    }
    std::string axes() const {
        std::string grid = "<path class=\"grid\" d=\"", words;
        for (const double at : c_.is_logarithmic ? powers_between(y0_, y1_) : ticks_between(y0_, y1_, 4)) {
            grid += "M46 " + coordinate(y(at)) + "H352";
            words += "<text class=\"of-y\" x=\"42\" y=\"" + coordinate(y(at) + 3.5) + "\">" + short_number(at) + "</text>\n";
        }
        for (const double t : c_.has_powers_of_two ? powers_of_two_between(x0_, x1_) : ticks_between(x0_, x1_, 5)) {
            const double at = x(t);
            const char* const where = at > right - 14 ? " class=\"last\"" : "";
            words += std::string("<text") + where + " x=\"" + coordinate(at) + "\" y=\"185\">" + short_number(t) + "</text>\n";
        }
        return grid + "\"/>\n<path class=\"axis\" d=\"M46 8V172H352\"/>\n" + words + "<text class=\"of-x\" x=\"199\" y=\"198\">" +
               escaped(c_.of_x) + "</text>\n";
    }
    void draw_lines(std::string& page) const {
        for (const chart_line& l : c_.lines) {
            std::string path, dots;
            for (const curve_point& p : l.points) {
                if (!is_shown(p)) continue;
                const std::string px = coordinate(x(p.x)), py = coordinate(y(p.y));
                path += path.empty() ? "M" + px + " " + py : l.has_steps ? "H" + px + "V" + py : "L" + px + " " + py;
                if (l.is_dotted) dots += "<circle cx=\"" + px + "\" cy=\"" + py + "\" r=\"2.4\"/>";
            }
            if (path.empty()) continue;
            if (l.points.size() == 1) path += "h.1";  // a point that a round cap makes visible
            page += "<path class=\"line" + std::string(l.is_dotted || l.is_dashed ? " dashed" : l.is_faint ? " faint" : "") + "\" style=\"stroke:" + l.paint() + "\" d=\"" +
                    path + "\"/>\n";
            if (!dots.empty()) page += "<g style=\"fill:" + l.paint() + "\">" + dots + "</g>\n";
        }
    }
    void draw_bands(std::string& page) const {
        std::vector<double> below;
        for (const chart_line& l : c_.lines) {
            below.resize(std::max(below.size(), l.points.size()));
            std::string there, back;
            for (std::size_t i = 0; i < l.points.size(); ++i) {
                const std::string px = coordinate(x(l.points[i].x));
                back = "L" + px + " " + coordinate(y(below[i])) + back;
                below[i] += l.points[i].y;
                there += (i == 0 ? "M" : "L") + px + " " + coordinate(y(below[i]));
            }
            if (!there.empty())
                page += "<path style=\"fill:" + l.paint() + "\" d=\"" + there + back + "Z\"/>\n";
        }
    }
    void draw_points(std::string& page) const {
        for (const chart_point& p : c_.points) {
            const std::string px = coordinate(x(p.x)), py = coordinate(y(p.y));
            page += "<g><title>" + escaped(p.text) + "</title>";
            if (p.ring != 0) page += "<circle class=\"ring\" cx=\"" + coordinate(x(p.ring)) + "\" cy=\"" + py + "\" r=\"9.5\"/>";
            page += "<circle class=\"point\" cx=\"" + px + "\" cy=\"" + py + "\" r=\"7\"/><text class=\"number\" x=\"" + px + "\" y=\"" +
                    coordinate(y(p.y) + 3.6) + "\">" + escaped(p.label) + "</text></g>\n";
        }
    }
    std::string legend() const {
        const auto named = std::count_if(c_.lines.begin(), c_.lines.end(), [](const chart_line& l) { return !l.is_faint; });
        if (named < 2 && c_.marks.empty()) return "";
        std::string page = "<p class=\"key\">";
        for (const chart_line& l : c_.lines) {
            if (l.is_faint) continue;
            page += "<span><i style=\"background:" + l.paint() + "\"></i>" + escaped(l.name) + "</span> ";
        }
        if (!c_.marks.empty()) page += "<span><b class=\"skip\">&#9660;</b>" + escaped(c_.mark_name) + "</span>";
        return page + "</p>\n";
    }

    const chart& c_;
    double x0_ = 0, x1_ = 0, y0_ = 0, y1_ = 0;
};

inline std::string chart::svg() const { return chart_drawing(*this).svg(); }

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
