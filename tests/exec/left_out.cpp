// SPDX-License-Identifier: MIT
/// \file
/// A comparison without values is wrong, unless its test case has left them to another run of the program.
#include <doctest/doctest.h>

#include "support/bounds.hpp"
#include "support/each_set.hpp"

namespace exec_left_out_tests {

TEST_CASE("a comparison without values is wrong") {
    const support::comparison none;
    CHECK(!none.within());
}

TEST_CASE("a comparison without values is right where every set is left to another run") {
    support::comparison c;
    support::for_each_set([&](halftone::isa) { c.expect(1, 1, 0); });
    CHECK(c.within());
}

TEST_CASE("what one test case leaves out is not another's excuse") {
    const support::comparison none;
    CHECK(!none.within());
}

}  // namespace exec_left_out_tests
