// SPDX-License-Identifier: MIT
/// \file
/// Numbers and fractions as text in numerics views: "3.1%", "0.0123", "65472".
#pragma once

#include <cstdio>
#include <string>

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// "3.1%", "0.012%", "1e-06%".
inline std::string percent_text(double share) {
    char text[32];
    std::snprintf(text, sizeof text, share == 0 || share >= 0.1 ? "%.0f%%" : "%.2g%%", 100 * share);
    return text;
}
inline std::string number_text(double x) {
    char text[32];
    std::snprintf(text, sizeof text, x >= 100 && x < 1e7 ? "%.0f" : "%.3g", x);
    return text;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
