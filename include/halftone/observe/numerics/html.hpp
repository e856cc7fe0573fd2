// SPDX-License-Identifier: MIT
/// \file
/// A numerics view as one HTML page: for each tensor a strip that shows the histogram of its exponents, below the
/// ranges of the small formats. The page loads nothing, and adapts to light and dark, narrow and wide screens.
///
///     std::ofstream("numerics.html") << ht::numerics_html(view, "amp_fp16, step 100");
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <halftone/observe/numerics/numerics.hpp>
#include <halftone/observe/report/strip.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

/// The exponent of the least number that has all of the type's bits; of fixed-point numbers, of the least.
inline int least_normal(value_format format) {
    return format->is_fixed_point() ? std::ilogb(format->min_subnormal) : format->min_exponent - 1;
}
inline std::string format_strip(const strip_axis& c, value_format format) {
    const int normal = least_normal(format), least = std::ilogb(format->min_subnormal), most = format->max_exponent - 1;
    return "<tr class=\"format\"><th scope=\"row\">" + escaped(name(format)) + "</th><td>" +
           c.open("from 2^" + std::to_string(least) + " (normal from 2^" + std::to_string(normal) + ") to below 2^" +
                  std::to_string(most + 1), "strip thin") +
           c.rectangle(least, normal - 1, "part") + c.rectangle(normal, most, "range") +
           "</svg></td><td class=\"n\"></td></tr>\n";
}

/// The small formats of the library, and then those of the view that are not among them.
inline std::vector<value_format> formats_beside(const numerics_view& view) {
    std::vector<value_format> all{value_format::float16, value_format::bfloat16, value_format::float8_e4m3,
                                  value_format::float8_e5m2};
    for (const numerics_row& r : view.rows) {
        if (r.format != value_format::float32 && std::find(all.begin(), all.end(), r.format) == all.end())
            all.push_back(r.format);
    }
    return all;
}

}  // namespace detail

/// A part of a page that shows each tensor's values by exponent, with the range of its type, and the proposals; for a
/// page of detail::drawn_page_begin.
inline std::string numerics_body(const numerics_view& view) {
    using namespace detail;
    strip_axis c{-30, 18};
    for (const numerics_row& r : view.rows) {
        for (int e = -149; e < c.first; ++e) {
            if (r.counts.count(e, e) > 0) c.first = e;
        }
        for (int e = 127; e > c.last; --e) {
            if (r.counts.count(e, e) > 0) c.last = e;
        }
    }
    std::string page =
        "<div class=\"numerics\">\n<p>Loss scale " + number_text(static_cast<double>(view.loss_scale)) +
        ". Each strip is the histogram of one tensor's exponents: the stronger the colour, the more values. Orange: "
        "subnormal numbers of the tensor's own type, which have fewer bits. The two lines mark the range of float16's normal "
        "numbers. An operand is what a product reads in eight bits: shown as it is read, that is times its "
        "scale.</p>\n<h2>Proposals</h2>\n<ul>\n";
    const auto proposals = view.proposals();
    for (const numerics_proposal& p : proposals) page += "<li>" + escaped(p.text) + "</li>\n";
    if (proposals.empty())
        page +=
            "<li>None: every value is finite, and no gradient in 16 bits has more than 1% of its values below the least "
            "normal number.</li>\n";
    page +=
        "</ul>\n<h2>Exponents</h2>\n<table>\n<caption>On the right: the share of zeros; how many of them rounding made "
        "(known of weights with masters and of operands in eight bits alone); values "
        "that are infinite or NaN; values near the top, that is of half the type's largest number or "
        "more.</caption>\n<tr><th scope=\"row\">2<sup>e</sup></th><td>";
    page += c.ticks() + "</td><td class=\"n\"></td></tr>\n";
    for (const value_format format : formats_beside(view)) page += format_strip(c, format);
    const std::string marks = c.lines(-14, 16);
    for (const numerics_row& r : view.rows) {
        extent most = 1;
        for (int e = c.first; e <= c.last; ++e) most = std::max(most, r.counts.count(e, e));
        const int normal = least_normal(r.format);
        const extent odd = r.counts.infinities + r.counts.nans, all = std::max<extent>(r.counts.elements(), 1);
        std::string label = row_text(r);
        std::string small = r.is_weight() ? "weight" : std::string(name(r.pass)) + " " + row_tensor_text(r);
        small += std::string(", ") + name(r.format);
        if (r.is_operand()) {
            small += ", scale " + number_text(static_cast<double>(r.operand.scale)) + " for amax " +
                     number_text(static_cast<double>(r.operand.amax));
        }
        page += "<tr><th scope=\"row\">" + escaped(label) + " <small>" + escaped(small) + "</small></th><td>" +
                c.open("largest " + number_text(static_cast<double>(r.counts.largest)));
        for (int e = c.first; e <= c.last; ++e) {
            const extent n = r.counts.count(e, e);
            if (n == 0) continue;
            // The square root, so that small counts are visible next to large ones.
            page += c.column(e, e < normal ? "low" : "in", 0.15 + 0.85 * std::sqrt(static_cast<double>(n) / static_cast<double>(most)));
        }
        page += marks + "</svg></td><td class=\"n\">";
        std::string notes;
        const auto note = [&notes](const std::string& text) { notes += (notes.empty() ? "" : ", ") + text; };
        const auto share = [all](extent n) { return percent_text(static_cast<double>(n) / static_cast<double>(all)); };
        if (r.counts.zeros > 0) note(share(r.counts.zeros) + " zero");
        if (r.underflowed > 0) note(share(r.underflowed) + " rounded to zero");
        if (odd > 0) note(std::to_string(odd) + (r.counts.infinities > 0 ? " inf" : " NaN"));
        if (r.saturation() > 0) note(percent_text(r.saturation()) + " near the top");
        if (r.is_operand() && r.operand.saturated > 0) note(share(r.operand.saturated) + " saturated");
        page += notes;
        page += "</td></tr>\n";
    }
    return page + "</table>\n</div>\n";
}

/// An HTML page with that; it loads nothing from elsewhere.
inline std::string numerics_html(const numerics_view& view, const std::string& title) {
    return detail::drawn_page_begin(title) + numerics_body(view) + "</body>\n</html>\n";
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
