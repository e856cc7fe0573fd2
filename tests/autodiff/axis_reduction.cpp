// SPDX-License-Identifier: MIT
/// \file
/// Reductions along axes on a tape, on the CPU.
#include <doctest/doctest.h>

#include <halftone/kernel.hpp>

#include "autodiff/axis_reduction_checks.hpp"

namespace autodiff_axis_reduction_tests {

using namespace axis_tape_checks;

TEST_CASE("axis reductions on a tape: gradients are those of differences, in double") {
    ht::cpu device{{.threads = 2}};
    all_gradients(device);
}

TEST_CASE("axis reductions on a tape: shapes, values, indices") {
    ht::cpu device{{.threads = 2}};
    shapes_and_values(device);
    deviations_beyond_squares(device);
    variances_beyond_sums(device);
    narrow_results(device);
}

TEST_CASE("axis reductions on a tape: invalid arguments") {
    ht::cpu device{{.threads = 1}};
    ht::inference eval{device};
    const auto x = eval.constant(ht::const_view<float, 2>(nullptr, {3, 0}));
    CHECK_THROWS_WITH_AS(
        ht::amax(eval, x, axes<1>),
        "amax: there are no elements along the axes that are reduced, so none is the largest or the smallest",
        ht::shape_error);
    CHECK_THROWS_AS(ht::argmin(eval, x, axes<1>), ht::shape_error);
    CHECK(ht::amax(eval, x, axes<0>).size() == 0);
}

}  // namespace autodiff_axis_reduction_tests
