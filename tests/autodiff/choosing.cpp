// SPDX-License-Identifier: MIT
/// \file
/// Gathering along an axis, and masks, on tapes of the CPU; choosing_checks.hpp has the tests. Also categories and errors.
#include <halftone/kernel.hpp>

#include "autodiff/choosing_checks.hpp"

namespace autodiff_choosing_tests {

namespace ht = halftone;

TEST_CASE("gather, index_select, scatter_add, index_add, where, masked_fill, tril, triu, one_hot on tapes") {
    ht::cpu device{{.threads = 2}};
    choosing_checks::all(device);
}

TEST_CASE("choosing: an index outside the axis, sources of another shape") {
    ht::cpu device{{.threads = 1}};
    ht::inference eval{device};
    std::vector<float> x(6);
    const std::vector<std::int32_t> index{0, 3, 1, 1};
    const auto a = eval.constant(ht::const_view<float, 2>(x.data(), {2, 3}));
    const ht::const_view<std::int32_t, 2> at(index.data(), {2, 2});
    CHECK_THROWS_WITH_AS(ht::gather(eval, a, ht::axes<1>, at), "gather: index 1 is 3; expected 0 to 2", ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::one_hot(eval, at, 3), "one_hot: the index of row 1 is 3; expected 0 to 2", ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::scatter_add(eval, a, ht::axes<1>, at, a),
                         "scatter_add: the source is (2, 3); expected the index's shape, (2, 2)", ht::shape_error);
    const ht::const_view<std::int32_t, 1> rows(index.data(), {1});
    CHECK_THROWS_WITH_AS(ht::index_add(eval, a, ht::axes<0>, rows, a),
                         "index_add: the source is (2, 3); expected (1, 3), for 1 indices into (2, 3)", ht::shape_error);
}

}  // namespace autodiff_choosing_tests
