// SPDX-License-Identifier: MIT
/// \file
/// Tests of gathering along an axis, for every device.
///
///     gather_checks::chosen_exactly<bfloat16, bfloat16>(device);
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/gather/gather.hpp>
#include <halftone/kernel/gather/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace gather_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using ht::write_mode;
using support::guarded;
using doubles = std::vector<double>;

/// A tensor, one of its axes, and an index whose extents, apart from the axis, are at most the tensor's.
struct gather_case {
    ht::shape<3> x, index;
};
/// Empty tensors, tensors of one element, odd sizes, and indices shorter and longer than the tensor.
inline constexpr gather_case cases[] = {{{3, 5, 7}, {3, 4, 7}}, {{3, 5, 7}, {3, 11, 7}}, {{3, 5, 7}, {2, 3, 5}},
                                        {{1, 1, 1}, {1, 1, 1}}, {{2, 3, 1}, {2, 9, 1}},  {{4, 3, 2}, {1, 3, 1}},
                                        {{2, 3, 4}, {2, 0, 4}}, {{0, 3, 4}, {0, 5, 4}},  {{5, 1, 33}, {5, 70, 33}}};

/// Calls f with the axis as a constant, the tensor's and the index's shape with the case's second axis in its place.
template <class F>
void for_each_case(const F& f) {
    for (const gather_case& c : cases) {
        CAPTURE(c.x);
        CAPTURE(c.index);
        f(ht::axes<1>, 1, c.x, c.index);
        f(ht::axes<0>, 0, ht::shape<3>{c.x[1], c.x[0], c.x[2]}, ht::shape<3>{c.index[1], c.index[0], c.index[2]});
        f(ht::axes<-1>, 2, ht::shape<3>{c.x[0], c.x[2], c.x[1]}, ht::shape<3>{c.index[0], c.index[2], c.index[1]});
    }
}

/// An index of rank 1, broadcast to x's rank.
inline ht::const_view<std::int32_t, 3> for_all(const guarded<std::int32_t>& index, int axis, const ht::shape<3>& s) {
    ht::shape<3> strides{};
    strides[axis] = 1;
    return {index.data(), s, strides};
}

/// A chosen element is x's element, rounded to Y if that is narrower.
template <class X, class Y, class Device>
void chosen_exactly(Device& device) {
    for_each_case([&](auto axes, int axis, const ht::shape<3>& s, const ht::shape<3>& places) {
        support::random data(static_cast<std::uint64_t>(s.size() + axis));
        const guarded<X> x(data.normals<X>(s.size()));
        const guarded<std::int32_t> index(data.indices(places.size(), static_cast<int>(s[axis])));
        const guarded<Y> y(places.size(), 3), want(places.size(), 3);
        ht::gather(device, x.const_view(s), axes, index.const_view(places), y.view(places));
        ht::reference::gather(x.const_view(s), axis, index.const_view(places), want.view(places));
        CHECK(y.same_bits(want));
        CHECK(y.intact());

        const guarded<std::int32_t> slices(data.indices(places[axis], static_cast<int>(s[axis])));
        ht::shape<3> selected = s;
        selected[axis] = places[axis];
        const guarded<Y> z(selected.size(), 5), slices_of_x(selected.size(), 5);
        ht::index_select(device, x.const_view(s), axes, slices.const_view(), z.view(selected));
        ht::reference::gather(x.const_view(s), axis, for_all(slices, axis, selected), slices_of_x.view(selected));
        CHECK(z.same_bits(slices_of_x));
        CHECK(z.intact());
    });
}

/// Compares sums with the definition's: each term passes through at most as many additions as there are terms, and the sum is
/// rounded once. With small integers sums are exact in any order.
template <class X, class G, class Device>
void summed_within_bounds(Device& device, write_mode mode, bool integers) {
    support::comparison all;
    const auto compare = [&](const guarded<G>& got, const std::vector<G>& before, doubles want, const doubles& sizes,
                             const doubles& uses) {
        for (std::size_t i = 0; i < want.size(); ++i) {
            const double old = mode == write_mode::add ? static_cast<double>(before[i]) : 0;
            const double value = want[i] + old, error = support::gamma(uses[i] + 1) * (sizes[i] + std::fabs(old));
            if (integers || uses[i] == 0) {
                CHECK(static_cast<double>(got[static_cast<extent>(i)]) == value);
            } else {
                all.expect(static_cast<double>(got[static_cast<extent>(i)]), value, support::rounded<G>(value, error));
            }
        }
        CHECK(got.intact());
    };
    for_each_case([&](auto axes, int axis, const ht::shape<3>& s, const ht::shape<3>& places) {
        support::random data(static_cast<std::uint64_t>(s.size() + 7 * axis));
        const auto numbers = [&]<class T>(T, extent n) {
            return integers ? data.integers<T>(n, 3) : data.normals<T>(n);
        };
        const std::vector<G> before = numbers(G(), s.size());
        const auto n = static_cast<std::size_t>(s.size());
        const auto define = [&](const guarded<X>& from, const ht::const_view<std::int32_t, 3>& index, const guarded<G>& to) {
            doubles want(n), sizes(n), uses(n), magnitudes, ones(static_cast<std::size_t>(from.size()), 1.0);
            for (extent i = 0; i < from.size(); ++i) magnitudes.push_back(std::fabs(static_cast<double>(from[i])));
            const auto add = [&](const auto* data_of, doubles& sums) {
                ht::reference::scatter_add(ht::view(data_of, index.shape()), axis, index, ht::view<double, 3>(sums.data(), s));
            };
            add(from.data(), want), add(magnitudes.data(), sizes), add(ones.data(), uses);
            compare(to, before, want, sizes, uses);
        };
        const guarded<X> from(numbers(X(), places.size()));
        const guarded<std::int32_t> index(data.indices(places.size(), static_cast<int>(s[axis])));
        const guarded<G> to(before, 3);
        ht::scatter_add(device, from.const_view(places), axes, index.const_view(places), to.view(s), mode);
        define(from, index.const_view(places), to);

        const guarded<std::int32_t> slices(data.indices(places[axis], static_cast<int>(s[axis])));
        ht::shape<3> selected = s;
        selected[axis] = places[axis];
        const guarded<X> rows(numbers(X(), selected.size()));
        const guarded<G> sums(before, 5);
        ht::index_add(device, rows.const_view(selected), axes, slices.const_view(), sums.view(s), mode);
        define(rows, for_all(slices, axis, selected), sums);
    });
    if (!integers) CHECK_WITHIN(all);
}

template <class Device>
void all(Device& device) {
    chosen_exactly<float, float>(device);
    chosen_exactly<bfloat16, bfloat16>(device);
    chosen_exactly<float, float16>(device);
    chosen_exactly<double, double>(device);
    for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
        summed_within_bounds<float, float>(device, mode, false);
        summed_within_bounds<bfloat16, bfloat16>(device, mode, false);
        summed_within_bounds<float16, float>(device, mode, false);
        summed_within_bounds<bfloat16, float>(device, mode, true);
        summed_within_bounds<double, double>(device, mode, true);
    }
}

/// The sums of a long index, for comparisons of bits.
template <class Device>
std::vector<float> long_sums(Device& device) {
    constexpr extent places = 5000, width = 6;
    support::random data(3);
    const auto from = data.normals<bfloat16>(places * width);
    const auto index = data.indices(places * width, 17), slices = data.indices(places, 17);
    std::vector<float> to(2 * 17 * width, 0.5f);
    const ht::shape<2> s{places, width}, sums{17, width};
    ht::scatter_add(device, ht::const_view<bfloat16, 2>(from.data(), s), ht::axes<0>,
                    ht::const_view<std::int32_t, 2>(index.data(), s), ht::view<float, 2>(to.data(), sums));
    ht::index_add(device, ht::const_view<bfloat16, 2>(from.data(), s), ht::axes<0>,
                  ht::const_view<std::int32_t, 1>(slices.data(), {places}),
                  ht::view<float, 2>(to.data() + 17 * width, sums));
    return to;
}

template <class Device>
void refuses(Device& device) {
    const guarded<float> x(12), y(12);
    const guarded<std::int32_t> index(std::vector<std::int32_t>(12, 0));
    const auto xs = x.const_view(ht::shape<2>{3, 4});
    const auto is = [&](extent a, extent b) { return index.const_view(ht::shape<2>{a, b}); };
    const auto ys = [&](extent a, extent b) { return y.view(ht::shape<2>{a, b}); };
    CHECK_THROWS_WITH_AS(ht::gather(device, xs, ht::axes<1>, is(4, 2), ys(4, 2)),
                         "gather: the index is (4, 2), the tensor (3, 4); along axis 0 the index is the longer one",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::gather(device, xs, ht::axes<1>, is(3, 2), ys(2, 3)), "gather: y is (2, 3); expected (3, 2)",
                         ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::scatter_add(device, xs, ht::axes<0>, is(2, 4), ys(3, 4)),
                         "scatter_add: from is (3, 4); expected (2, 4)", ht::shape_error);
    const auto one = ht::const_view<std::int32_t, 1>(index.data(), {2});
    CHECK_THROWS_WITH_AS(ht::index_select(device, xs, ht::axes<0>, one, ys(3, 4)),
                         "index_select: y is (3, 4); expected (2, 4)", ht::shape_error);
    CHECK_THROWS_WITH_AS(ht::index_add(device, xs, ht::axes<0>, one, ys(3, 4)),
                         "index_add: from is (3, 4); expected (2, 4)", ht::shape_error);
}

}  // namespace gather_checks
