// SPDX-License-Identifier: MIT
#include <halftone/tensor/axes.hpp>

#include <doctest/doctest.h>

namespace tensor_axes_tests {

namespace ht = halftone;

TEST_CASE("axes are counted from either end") {
    using last_and_first = ht::detail::resolved_axes<3, -1, 0>;
    CHECK(last_and_first::values[0] == 2);
    CHECK(last_and_first::values[1] == 0);
    CHECK(last_and_first::contains(0));
    CHECK_FALSE(last_and_first::contains(1));
    static_assert(decltype(ht::axes<1, 2>)::count == 2);
}

TEST_CASE("a shape with some axes removed, and with extents of 1 in their place") {
    const ht::shape s{2, 3, 4};
    CHECK(ht::detail::without_axes(s, ht::axes<1>) == ht::shape{2, 4});
    CHECK(ht::detail::without_axes(s, ht::axes<-1, 0>) == ht::shape{3});
    CHECK(ht::detail::without_axes(s, ht::axes<>) == s);
    CHECK(ht::detail::without_axes(s, ht::axes<0, 1, 2>) == ht::shape<0>{});
    CHECK(ht::detail::with_ones(s, ht::axes<0, -1>) == ht::shape{1, 3, 1});
    CHECK(ht::detail::with_ones(s, ht::axes<>) == s);
}

}  // namespace tensor_axes_tests
