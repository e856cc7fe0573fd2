// SPDX-License-Identifier: MIT
/// \file
/// The rules of the part of a page that shows numerics (html.hpp), also for pages that have such a part.
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The rules of numerics_body, for drawn_page_begin.
inline constexpr const char* numerics_style =
    ".numerics table{border-collapse:collapse;width:100%;table-layout:fixed;font-size:12px}\n"
    ".numerics th{font-weight:400;text-align:left;width:38%;padding:1px 6px 1px "
    "0;overflow-wrap:anywhere;vertical-align:middle}\n"
    ".numerics th small,.numerics .n{color:var(--dim)}.numerics td{padding:1px "
    "0}.numerics .n{width:6.5rem;text-align:right;font-variant-numeric:tabular-nums;font-size:11px}\n"
    ".numerics caption{text-align:left;padding-bottom:.4rem;color:var(--dim)}\n"
    "@media (max-width:600px){.numerics th{width:44%}.numerics .n{width:3.6rem}}\n";

}  // namespace detail

}  // namespace HALFTONE_ABI
}  // namespace halftone
