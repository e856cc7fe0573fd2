// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in initial.hpp that are no templates.
#pragma once

#include <halftone/memory/initial.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

HALFTONE_OUT_OF_LINE void check_initial(const char* leaf, const initial& values) {
    const auto is_spread = [](float x) { return is_finite(x) && x >= 0; };
    if (!is_finite(values.mean) || !is_spread(values.deviation) || !is_spread(values.bound)) {
        fail<argument_error>("store: ", leaf, " begins with mean ", values.mean, ", deviation ", values.deviation,
                             ", bound ", values.bound, "; expected finite numbers, deviation and bound 0 or more");
    }
    if (values.deviation != 0 && values.bound != 0) {
        fail<argument_error>(
            "store: ", leaf,
            " begins with both a deviation (normally distributed) and a bound (uniformly distributed); "
            "expected at most one of them");
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
