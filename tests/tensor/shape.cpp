// SPDX-License-Identifier: MIT
/// \file
/// Shapes: sizes, printing, and errors.
#include <cstdint>
#include <sstream>

#include <doctest/doctest.h>

#include <halftone/tensor/shape.hpp>

namespace tensor_shape_tests {

namespace ht = halftone;

static_assert(ht::shape<3>{2, 3, 4}.size() == 24);
static_assert(ht::shape<0>{}.size() == 1);
static_assert(ht::shape<2>{5, 0}.size() == 0);
static_assert(ht::shape<2>{5, 7}[1] == 7);
static_assert(ht::shape<2>{5, 7} == ht::shape<2>{5, 7});
static_assert(!(ht::shape<2>{5, 7} == ht::shape<2>{7, 5}));

template <int Rank>
std::string printed(const ht::shape<Rank>& s) {
    std::ostringstream out;
    out << s;
    return out.str();
}

TEST_CASE("shape: prints as its extents") {
    CHECK(printed(ht::shape<0>{}) == "()");
    CHECK(printed(ht::shape<1>{7}) == "(7)");
    CHECK(printed(ht::shape<3>{8, 1024, 768}) == "(8, 1024, 768)");
}

TEST_CASE("check_shape: negative extents and sizes beyond memory") {
    CHECK_NOTHROW(ht::check_shape("test", ht::shape<3>{8, 0, 768}));
    CHECK_NOTHROW(ht::check_shape("test", ht::shape<2>{1 << 20, 1 << 20}));
    CHECK_THROWS_WITH_AS(ht::check_shape("test", ht::shape<2>{4, -1}), "test: shape (4, -1) has a negative extent",
                         ht::shape_error);
    constexpr ht::extent large = ht::extent{1} << 40;
    CHECK_THROWS_WITH_AS(ht::check_shape("test", ht::shape<2>{large, large}),
                         "test: shape (1099511627776, 1099511627776) has more elements than fit in memory",
                         ht::shape_error);
    CHECK_THROWS_AS(ht::check_shape("test", ht::shape<1>{INT64_MAX}), ht::shape_error);
    // An extent of 0 does not hide an overflow of the other extents' product.
    CHECK_THROWS_AS(ht::check_shape("test", ht::shape<3>{0, large, large}), ht::shape_error);
}

}  // namespace tensor_shape_tests
