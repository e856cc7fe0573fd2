// SPDX-License-Identifier: MIT
/// \file
/// What the HTML pages of halftone's reports have in common: colours for light and dark, one column that fits every screen.
/// A page loads nothing from elsewhere.
#pragma once

#include <string>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Text that may stand between tags and in attributes.
inline std::string escaped(const std::string& text) {
    std::string safe;
    for (const char c : text) {
        if (c == '&') safe += "&amp;";
        else if (c == '<') safe += "&lt;";
        else if (c == '>') safe += "&gt;";
        else if (c == '"') safe += "&quot;";
        else safe += c;
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
           "(prefers-color-scheme:dark){:root{--ink:#e6e8ea;--dim:#9aa1a8;--page:#15181b;--strip:#23282d;--in:#7db4f5;--"
           "low:#fb923c;--line:#5b626a}}\n"
           "body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--page);color:var(--ink);font:15px/1.45 "
           "system-ui,sans-serif}\n"
           "h1{font-size:1.3rem}h2{font-size:1.1rem;margin-top:2rem}p,li{overflow-wrap:anywhere}\n" +
           style + "</style>\n</head>\n<body>\n<h1>" + escaped(title) + "</h1>\n";
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
