// SPDX-License-Identifier: MIT
/// \file
/// Views: indexing, strides, and other views of the same memory.
#include <cstdint>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/tensor/view.hpp>

namespace tensor_view_tests {

namespace ht = halftone;

/// A 16-bit number type of another library, as __half is.
struct foreign {
    std::uint16_t bits;
};

}  // namespace tensor_view_tests

template <>
struct halftone::stands_for<tensor_view_tests::foreign> {
    using type = halftone::float16;
};

namespace tensor_view_tests {

std::vector<int> counted(int n) {
    std::vector<int> values(static_cast<std::size_t>(n));
    std::iota(values.begin(), values.end(), 0);
    return values;
}

TEST_CASE("view: row-major, the last axis next to each other") {
    auto values = counted(24);
    const ht::view<int, 3> v(values.data(), {2, 3, 4});
    CHECK(v.size() == 24);
    CHECK(v.strides() == ht::shape<3>{12, 4, 1});
    CHECK(v.extent_of(1) == 3);
    CHECK(v.stride_of(1) == 4);
    CHECK(v.is_contiguous());
    CHECK(v(1, 2, 3) == 23);
    CHECK(v(1, 0, 2) == 14);
    v(0, 1, 1) = -1;
    CHECK(values[5] == -1);

    const ht::const_view<int, 3> c = v;
    CHECK(c(1, 2, 3) == 23);
    CHECK(c.strides() == v.strides());
    static_assert(std::is_same_v<decltype(c(0, 0, 0)), const int&>);
    static_assert(std::is_same_v<ht::const_view<int, 3>::value_type, int>);
    static_assert(!std::is_convertible_v<ht::const_view<int, 3>, ht::view<int, 3>>);

    const ht::view scalar(values.data(), ht::shape<0>{});
    CHECK(scalar() == 0);
    CHECK(scalar.size() == 1);
    CHECK(ht::view<int, 2>{}.data() == nullptr);
}

TEST_CASE("view: a contiguous view has no gaps; axes of one element do not matter") {
    auto values = counted(24);
    CHECK_FALSE(ht::view<int, 2>(values.data(), {3, 4}, {8, 1}).is_contiguous());
    CHECK_FALSE(ht::view<int, 2>(values.data(), {3, 4}, {1, 3}).is_contiguous());
    CHECK(ht::view<int, 2>(values.data(), {1, 4}, {8, 1}).is_contiguous());
    CHECK(ht::view<int, 2>(values.data(), {4, 1}, {1, 99}).is_contiguous());
    CHECK(ht::transpose(ht::view<int, 2>(values.data(), {4, 0})).is_contiguous());  // of nothing
}

TEST_CASE("view: a negative extent is refused") {
    float x[6] = {};
    CHECK_THROWS_WITH_AS((ht::view<float, 2>(x, {2, -3})), "view: shape (2, -3) has a negative extent",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS((ht::view<float, 2>(x, {-2, -3}, {3, 1})), "view: shape (-2, -3) has a negative extent",
                         ht::shape_error);
    CHECK_THROWS_AS((ht::view(x, ht::shape<1>{INT64_MIN})), ht::shape_error);
    CHECK(ht::view<float, 2>(x, {0, 3}).size() == 0);
    CHECK(ht::view<float, 0>(x, {}).size() == 1);
    CHECK(ht::view<float, 2>(x + 5, {2, 3}, {-3, -1})(1, 2) == 0);  // strides may be
    static_assert(ht::view<const float, 1>(nullptr, {0}).size() == 0);
}

TEST_CASE("view: more elements than fit in memory are refused, and a count that overflows") {
    float x = 0;
    constexpr ht::extent large = ht::extent{1} << 32;
    CHECK_THROWS_WITH_AS((ht::view<float, 2>(&x, {large, large})),
                         "view: shape (4294967296, 4294967296) has more elements than fit in memory", ht::shape_error);
    CHECK_THROWS_AS((ht::view<float, 2>(&x, {large, large}, {0, 0})), ht::shape_error);
    CHECK_THROWS_AS((ht::view<float, 3>(&x, {large, 0, large})), ht::shape_error);
    CHECK(ht::view<float, 2>(&x, {large, 0}).size() == 0);
    CHECK(ht::view<float, 2>(&x, {large, 1 << 20}, {0, 0}).size() == large << 20);
}

TEST_CASE("transpose: exchanges the last two axes, in the same memory") {
    auto values = counted(24);
    const ht::view<int, 2> v(values.data(), {4, 6});
    const auto t = ht::transpose(v);
    CHECK(t.shape() == ht::shape<2>{6, 4});
    int wrong = 0;
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 6; ++j) wrong += &t(j, i) == &v(i, j) ? 0 : 1;
    }
    CHECK(wrong == 0);
    CHECK_FALSE(t.is_contiguous());
    CHECK(ht::transpose(t).is_contiguous());

    const auto batched = ht::transpose(ht::view<int, 3>(values.data(), {2, 3, 4}));
    CHECK(batched.shape() == ht::shape<3>{2, 4, 3});
    CHECK(batched(1, 3, 2) == 23);
    CHECK(batched(1, 2, 0) == 14);
}

TEST_CASE("matrix: one of several") {
    auto values = counted(24);
    const auto m = ht::matrix(ht::view<int, 3>(values.data(), {2, 3, 4}), 1);
    CHECK(m.shape() == ht::shape<2>{3, 4});
    CHECK(m(0, 0) == 12);
    CHECK(m(2, 3) == 23);
}

TEST_CASE("as_rows and flatten: contiguous memory as a matrix or one axis") {
    auto values = counted(24);
    const ht::view<int, 3> v(values.data(), {2, 3, 4});
    const auto rows = ht::as_rows(v);
    CHECK(rows.shape() == ht::shape<2>{6, 4});
    CHECK(rows(5, 3) == 23);
    CHECK(ht::as_rows(ht::view<int, 1>(values.data(), {24})).shape() == ht::shape<2>{1, 24});
    CHECK(ht::flatten(v).shape() == ht::shape<1>{24});
    CHECK(ht::flatten(v)(14) == 14);
    CHECK(ht::as_rows(ht::view<int, 2>(nullptr, {0, 4})).shape() == ht::shape<2>{0, 4});
    CHECK(ht::as_rows(ht::view<int, 3>(nullptr, {2, 3, 0})).shape() == ht::shape<2>{6, 0});
    CHECK_THROWS_WITH_AS(ht::as_rows(ht::transpose(v)),
                         "as_rows: the view (2, 4, 3) is not contiguous; its strides are (12, 1, 4)", ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::flatten(ht::transpose(v)),
                         "flatten: the view (2, 4, 3) is not contiguous; its strides are (12, 1, 4)", ht::shape_error);
}

TEST_CASE("as_view: from a view, from a span") {
    auto values = counted(6);
    const ht::view<int, 2> v(values.data(), {2, 3});
    CHECK(ht::as_view(v).data() == values.data());
    const auto s = ht::as_view(std::span<int>(values));
    CHECK(s.shape() == ht::shape<1>{6});
    CHECK(s(5) == 5);
    const auto c = ht::as_view(std::span<const int, 6>(values));
    static_assert(std::is_same_v<decltype(c), const ht::const_view<int, 1>>);
    CHECK(c(5) == 5);
}

TEST_CASE("view: from a span with as many elements as the shape says") {
    auto values = counted(6);
    const ht::view v(std::span<int>(values), ht::shape<2>{2, 3});
    static_assert(std::is_same_v<decltype(v), const ht::view<int, 2>>);
    CHECK(v(1, 2) == 5);
    const ht::const_view<int, 2> c(std::span<int>(values), {3, 2});
    CHECK(c(2, 0) == 4);
    static_assert(!std::is_constructible_v<ht::view<int, 1>, std::span<const int>, ht::shape<1>>);
    CHECK_THROWS_WITH_AS(ht::view(std::span<int>(values), ht::shape<2>{2, 4}), "view: a span of 6 elements as (2, 4)",
                         ht::shape_error);
}

TEST_CASE("view: of another library's number type with the same format as one of halftone") {
    std::vector<foreign> values{{0x3c00}, {0xc000}, {0x3800}, {0x7bff}};
    const ht::view v(values.data(), ht::shape<2>{2, 2});
    static_assert(std::is_same_v<decltype(v), const ht::view<ht::float16, 2>>);
    CHECK(static_cast<float>(v(0, 1)) == -2.0f);
    v(1, 0) = ht::float16(3.0f);
    CHECK(values[2].bits == 0x4200);

    const std::vector<foreign>& constants = values;
    const ht::view c(constants.data(), ht::shape<1>{4});
    static_assert(std::is_same_v<decltype(c), const ht::const_view<ht::float16, 1>>);
    CHECK(static_cast<float>(c(3)) == 65504.0f);
    CHECK(static_cast<float>(ht::const_view<ht::float16, 1>(values.data(), {4})(0)) == 1.0f);
    CHECK(static_cast<float>(ht::as_view(std::span<const foreign>(constants))(0)) == 1.0f);
    CHECK(static_cast<float>(ht::view(std::span<foreign>(values), ht::shape<2>{4, 1})(1, 0)) == -2.0f);
    static_assert(!std::is_constructible_v<ht::view<ht::float16, 1>, const foreign*, ht::shape<1>>);
    static_assert(!std::is_constructible_v<ht::view<ht::bfloat16, 1>, foreign*, ht::shape<1>>);
}

TEST_CASE("view: the memory from its first element to its last") {
    float x[64];
    CHECK(ht::view<float, 2>(x, {3, 4}).bounding_size() == 12);
    CHECK(ht::view<float, 2>(x, {3, 4}, {16, 1}).bounding_size() == 36);
    CHECK(ht::view<float, 2>(x, {4, 3}, {1, 16}).bounding_size() == 36);
    CHECK(ht::view<float, 2>(x, {0, 4}, {16, 1}).bounding_size() == 0);
    CHECK(ht::view<float, 0>(x, {}).bounding_size() == 1);
    CHECK(ht::view<float, 2>(x, {3, 4}).elements_before() == 0);

    // Negative strides along one axis and along both, and one row repeated.
    const ht::view<float, 2> up(x + 32, {3, 4}, {-16, 1}), back(x + 35, {3, 4}, {-16, -1});
    CHECK(up.bounding_size() == 36);
    CHECK(up.elements_before() == 32);
    CHECK(back.bounding_size() == 36);
    CHECK(back.elements_before() == 35);
    CHECK(ht::view<float, 2>(x, {0, 4}, {-16, -1}).bounding_size() == 0);
    CHECK(ht::view<float, 2>(x, {0, 4}, {-16, -1}).elements_before() == 0);
    CHECK(ht::view<float, 2>(x, {3, 4}, {0, 1}).bounding_size() == 4);
}

TEST_CASE("view: whether it shows every element once") {
    float x[64];
    const auto once = [&x](const ht::shape<3>& shape, const ht::shape<3>& strides) {
        return ht::view<float, 3>(x, shape, strides).shows_elements_once();
    };
    CHECK(ht::view<float, 0>(x, {}).shows_elements_once());
    CHECK(once({2, 3, 4}, {12, 4, 1}));
    CHECK(once({2, 3, 4}, {4, 8, 1}));
    CHECK(once({2, 3, 4}, {1, 2, 6}));
    CHECK(once({2, 3, 4}, {-12, 4, -1}));
    CHECK(once({1, 3, 4}, {0, 4, 1}));  // along one element no step is taken
    CHECK(once({2, 1, 4}, {4, 4, 1}));
    CHECK(once({0, 3, 4}, {0, 0, 0}));
    CHECK_FALSE(once({2, 3, 4}, {0, 4, 1}));
    CHECK_FALSE(once({2, 3, 4}, {12, 4, 0}));
    CHECK_FALSE(once({2, 3, 4}, {12, 3, 1}));
    CHECK_FALSE(once({2, 3, 4}, {11, 4, 1}));
    CHECK_FALSE(once({2, 3, 4}, {12, -3, 1}));
    CHECK_FALSE(once({2, 2, 4}, {4, 4, 1}));
    CHECK_FALSE(once({2, 2, 4}, {4, -4, 1}));
    // Compared with counting, for all small strides: every overlap is found.
    int missed = 0, refused = 0;
    for (int s = -9; s <= 9; ++s) {
        for (int t = -9; t <= 9; ++t) {
            const ht::view<float, 3> v(x + 32, {3, 2, 2}, {s, t, 1});
            int shown[64] = {};
            bool twice = false;
            for (int i = 0; i < 3; ++i) {
                for (int j = 0; j < 2; ++j) {
                    for (int k = 0; k < 2; ++k) twice = twice || ++shown[&v(i, j, k) - x] > 1;
                }
            }
            missed += twice && v.shows_elements_once() ? 1 : 0;
            refused += twice || v.shows_elements_once() ? 0 : 1;
        }
    }
    CHECK(missed == 0);
    CHECK(refused < 19 * 19 / 8);  // axes that interleave
}

}  // namespace tensor_view_tests
