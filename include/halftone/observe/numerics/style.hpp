// SPDX-License-Identifier: MIT
/// \file
/// The rules of the part of a page that shows numerics (html.hpp), also for pages that have such a part.
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The rules of numerics_body, for page_begin.
inline constexpr const char* numerics_style =
    ".numerics table{border-collapse:collapse;width:100%;table-layout:fixed;font-size:12px}\n"
    ".numerics th{font-weight:400;text-align:left;width:38%;padding:1px 6px 1px "
    "0;overflow-wrap:anywhere;vertical-align:middle}\n"
    ".numerics th small,.numerics .n{color:var(--dim)}.numerics td{padding:1px "
    "0}.numerics .n{width:6.5rem;text-align:right;font-variant-numeric:tabular-nums;font-size:11px}\n"
    ".numerics svg{display:block;width:100%;height:14px;background:var(--strip)}.numerics .format svg{height:8px}\n"
    ".numerics .in{fill:var(--in)}.numerics .low{fill:var(--low)}.numerics .range{fill:var(--dim)}.numerics "
    ".part{fill:var(--dim);opacity:.4}\n"
    ".numerics .mark{stroke:var(--line);stroke-width:1;vector-effect:non-scaling-stroke;fill:none}\n"
    ".numerics .axis{position:relative;height:1.3em;color:var(--dim);font-size:11px}.numerics .axis "
    "span{position:absolute;transform:translateX(-50%);white-space:nowrap}\n"
    ".numerics caption{text-align:left;padding-bottom:.4rem;color:var(--dim)}\n"
    "@media (max-width:600px){body{padding:.6rem}.numerics th{width:44%}.numerics .n{width:3.6rem}.numerics .axis "
    ".odd{display:none}}\n";

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
