// SPDX-License-Identifier: MIT
/// \file
/// Counts tokens and time.
///
///     detail::token_meter window;
///     window.add(tokens, seconds);
///     window.rate();                            // tokens a second; 0 before anything was added
#pragma once

#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

struct token_meter {
    double tokens = 0, seconds = 0;
    void add(extent n, double s) { tokens += static_cast<double>(n), seconds += s; }
    double rate() const { return seconds > 0 ? tokens / seconds : 0; }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
