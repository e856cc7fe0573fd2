// SPDX-License-Identifier: MIT
/// \file
/// What all pages have in common, those of the report, of memory histories, of numerics, of shadow runs and of the programs: the
/// beginning, the colours and the rules of everything that they draw, in light, dark and print, and one column that fits every
/// screen. A page loads nothing from elsewhere.
#pragma once

#include <string>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The colours of runs (--s0 to --s7), of kinds of memory (--master to --activation) and of passes, in light, dark and
/// print. Kinds that outlive their step have --outlived.
inline constexpr const char* colour_style = R"page(
:root{--s0:#1f5fa8;--s1:#c2410c;--s2:#15803d;--s3:#7e22ce;--s4:#a16207;--s5:#be185d;--s6:#0e7490;--s7:#57534e;
--master:#1f5fa8;--copy:#7fb0e3;--moment:#2f7d6b;--gradient:#8b62b8;--other:#a9745a;--workspace:#9aa1a8;--outlived:#d11f3a;
--activation:#e3a93c;--forward:#b9c2cb;--backward:#6d7883;--update:#3f9b62}
@media screen and (prefers-color-scheme:dark){:root{--s0:#7db4f5;--s1:#fb923c;--s2:#6ee7a0;--s3:#c9a2f7;--s4:#f2c94c;--s5:#f9a8d4;--s6:#67e8f9;--s7:#c4bfba;
--master:#4a8ad6;--copy:#9cc4f0;--moment:#4da892;--gradient:#a985d6;--other:#c08e72;--workspace:#7b838b;--outlived:#ff4d63;
--activation:#d99a2b;--forward:#4b545d;--backward:#98a3ae;--update:#58b87e}}
)page";

/// The rules of charts, bars, strips, tables and legends, with colour_style before them.
inline constexpr const char* chart_style = R"page(
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,20rem),1fr));gap:1rem 1.5rem}
figure{margin:0;min-width:0;break-inside:avoid}figcaption{font-weight:600;font-size:.95rem}
svg.chart{display:block;width:100%;height:auto}
.chart text{font-size:11px;fill:var(--dim);text-anchor:middle}.chart .of-y,.chart .last{text-anchor:end}.chart .left{text-anchor:start}
.grid{stroke:var(--strip);fill:none}.axis{stroke:var(--line);fill:none}
.line{fill:none;stroke-width:1.5;stroke-linejoin:round;stroke-linecap:round}.dashed{stroke-dasharray:3 3;stroke-width:1}.faint{opacity:.3;stroke-width:1}
.point{fill:var(--in)}.ring{fill:none;stroke:var(--low);stroke-width:2}.chart text.number{fill:var(--page);font-weight:700}
.mark{fill:var(--low);stroke:var(--low)}.skip{color:var(--low)}
.key{margin:.1rem 0 0;font-size:.8rem;color:var(--dim);display:flex;flex-wrap:wrap;gap:.1rem .9rem}
.key i,.swatch{display:inline-block;width:.7rem;height:.7rem;margin-right:.3rem;border-radius:2px}
.scroll{overflow-x:auto}
table.data{border-collapse:collapse;font-size:.85rem;width:100%}
table.data th{text-align:left;font-weight:600;border-bottom:1px solid var(--line)}
table.data td,table.data th{padding:.15rem .8rem .15rem 0;vertical-align:top}
table.data td.n,table.data th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}table.data td.words{white-space:normal}
table.data tr{break-inside:avoid}
.bar{display:inline-block;width:4rem;height:.6rem;background:var(--strip);margin-right:.4rem}.bar i{display:block;height:100%;background:var(--in)}
td.limit{white-space:nowrap}
.bars text{font-size:11px;fill:var(--dim)}.bars .name{fill:var(--ink)}.bars .mark{stroke:var(--low);stroke-width:2;fill:none}
.strip{display:block;width:100%;height:14px;background:var(--strip)}.strip.thin{height:8px}
.strip .in{fill:var(--in)}.strip .low{fill:var(--low)}.strip .range{fill:var(--dim)}.strip .part{fill:var(--dim);opacity:.4}
.strip .mark{stroke:var(--line);stroke-width:1;vector-effect:non-scaling-stroke;fill:none}
.strip-axis{position:relative;height:1.3em;color:var(--dim);font-size:11px}.strip-axis span{position:absolute;transform:translateX(-50%);white-space:nowrap}
.numerics table{border-collapse:collapse;width:100%;table-layout:fixed;font-size:12px}
.numerics th{font-weight:400;text-align:left;width:38%;padding:1px 6px 1px 0;overflow-wrap:anywhere;vertical-align:middle}
.numerics th small,.numerics .n{color:var(--dim)}.numerics td{padding:1px 0}.numerics .n{width:6.5rem;text-align:right;font-variant-numeric:tabular-nums;font-size:11px}
.numerics caption{text-align:left;padding-bottom:.4rem;color:var(--dim)}
.dim{color:var(--dim)}
@media (max-width:600px){.numerics th{width:44%}.numerics .n{width:3.6rem}body{padding:.6rem}.strip-axis .odd{display:none}.wide{display:none}.bar{width:1.6rem}table.data td,table.data th{padding-right:.5rem}table.data td:first-child{overflow-wrap:anywhere;min-width:5.5rem}}
@page{margin:1.5cm}
@media print{:root{color-scheme:light;--ink:#000;--dim:#444;--page:#fff;--strip:#e8e8e8;--line:#888;--in:#1f5fa8;--low:#c2410c}
body{max-width:none;padding:0;font-size:10pt;-webkit-print-color-adjust:exact;print-color-adjust:exact}.charts{grid-template-columns:1fr 1fr}.scroll{overflow:visible}h2{break-after:avoid}
table.data{font-size:8pt}table.data td,table.data th{padding-right:.4rem}.bar{width:2.5rem}}
)page";

/// Text that may stand between tags and in attributes.
inline std::string escaped(const std::string& text) {
    std::string safe;
    for (const char c : text) {
        if (c == '&')
            safe += "&amp;";
        else if (c == '<')
            safe += "&lt;";
        else if (c == '>')
            safe += "&gt;";
        else if (c == '"')
            safe += "&quot;";
        else
            safe += c;
    }
    return safe;
}

/// A page's beginning, up to its heading; `style` is CSS that follows the common rules.
inline std::string page_begin(const std::string& title, const std::string& style) {
    return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
           "content=\"width=device-width, initial-scale=1\">\n<title>" +
           escaped(title) +
           "</title>\n<style>\n"
           ":root{color-scheme:light "
           "dark;--ink:#1c2024;--dim:#60666d;--page:#fff;--strip:#eef0f2;--in:#1f5fa8;--low:#c2410c;--line:#9aa1a8}\n"
           "@media "
           "(prefers-color-scheme:dark){:root{--ink:#e6e8ea;--dim:#9aa1a8;--page:#15181b;--strip:#23282d;--in:#7db4f5;-"
           "-"
           "low:#fb923c;--line:#5b626a}}\n"
           "body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--page);color:var(--ink);font:15px/1.45 "
           "system-ui,sans-serif}\n"
           "h1{font-size:1.3rem}h2{font-size:1.1rem;margin-top:2rem}p,li{overflow-wrap:anywhere}\n" +
           style + "</style>\n</head>\n<body>\n<h1>" + escaped(title) + "</h1>\n";
}

/// The beginning of a page with drawings; `style` is CSS of its own.
inline std::string drawn_page_begin(const std::string& title, const std::string& style = "") {
    return page_begin(title, std::string(colour_style) + chart_style + style);
}
/// A small square of a colour by its name, "master".
inline std::string swatch(const std::string& colour) { return "<i class=\"swatch\" style=\"background:var(--" + colour + ")\"></i>"; }

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
