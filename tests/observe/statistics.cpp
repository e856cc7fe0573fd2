// SPDX-License-Identifier: MIT
/// \file
/// Counts of values by magnitude: every value of the 16-bit types, all exponents of float, shares.
#include <doctest/doctest.h>

#include "observe/statistics_checks.hpp"

namespace observe_statistics_tests {

using namespace statistics_checks;

TEST_CASE("statistics: every value of a 16-bit type; all exponents of float") {
    ht::cpu device{{.threads = 1}};
    all_values<ht::float16>(device);
    all_values<ht::bfloat16>(device);
    all_exponents(device);
}

TEST_CASE("statistics: shares of what a type would lose") {
    ht::cpu device{{.threads = 1}};
    shares(device);
}

}  // namespace observe_statistics_tests
