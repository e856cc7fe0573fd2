// SPDX-License-Identifier: MIT
/// \file
/// Tests of rotary embedding, for every device.
///
///     CHECK(rotary_checks::is_right<ht::bfloat16>(device, {.time = 5, .heads = 3, .head_size = 64}));
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/rotary/reference.hpp>
#include <halftone/kernel/rotary/rotary.hpp>
#include <halftone/number/bfloat16.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace rotary_checks {

namespace ht = halftone;
using ht::bfloat16, ht::extent, ht::rotary_layout;
using support::guarded;

struct problem {
    extent batch = 2, time = 3, heads = 2, head_size = 8;
    extent columns = -1;  ///< of the table; -1: head_size
    extent turned = -1;   ///< heads
    rotary_layout layout = rotary_layout::half_split;
    bool inverse = false, positions = false;
    extent gap = 0, offset = 0;  ///< numbers between heads; from a vector's boundary
    ht::write_mode mode = ht::write_mode::overwrite;

    extent held() const { return columns < 0 ? head_size : columns; }
    ht::shape<4> shape() const { return {batch, time, heads, head_size}; }
    ht::shape<4> strides() const {
        const extent head = head_size + gap;
        return {time * heads * head, heads * head, head, 1};
    }
    extent count() const { return batch * time * heads * (head_size + gap); }
    ht::rotary_options options() const { return {layout, turned, inverse}; }
};

/// The error bound of a result: two roundings of each product and the sum, one more in write mode `add`, and the rounding to T.
/// Copied numbers are exact.
template <class T>
double bound_of(const problem& p, double magnitude, double want, double before, bool is_turned) {
    const bool adds = p.mode == ht::write_mode::add;
    if (!is_turned && !adds) return 0;
    if constexpr (std::is_same_v<T, double>) {
        return 4 * ht::unit_roundoff<double> * (magnitude + std::fabs(before));
    } else {
        return support::rounded<T>(want, support::gamma(3) * (magnitude + std::fabs(before)));
    }
}

/// Compares every number with the definition; checks that nothing else is written, and that y may be x.
template <class T, class Device>
bool is_right(Device& device, const problem& p) {
    support::random data(7);
    constexpr extent positions = 40;
    const guarded<T> x(data.normals<T>(p.count()), p.offset), y(data.normals<T>(p.count()), p.offset);
    const guarded<T> before(std::vector<T>(y.data(), y.data() + p.count()));
    const guarded<float> table(positions * p.held());
    const ht::view<float, 2> table_view(table.data(), {positions, p.held()});
    ht::fill_rotary_table(table_view, {.theta = 100});
    std::vector<std::int32_t> ids;
    for (extent i = 0; i < p.batch * p.time; ++i) ids.push_back(data.below(positions));
    ht::const_view<std::int32_t, 2> named{};
    if (p.positions) named = {ids.data(), {p.batch, p.time}};
    const ht::view<T, 4> from(x.data(), p.shape(), p.strides()), to(y.data(), p.shape(), p.strides());
    ht::kernel::rotary<Device>::run(device, ht::kernel::rotary_arguments<T>{from, to, table_view, named, p.options(), p.mode});
    std::vector<double> want(static_cast<std::size_t>(p.count()));
    const ht::view<double, 4> wanted(want.data(), p.shape(), p.strides());
    ht::reference::rotary(ht::const_view<T, 4>(from), ht::const_view<float, 2>(table_view), named, wanted, p.options());
    bool right = x.intact() && y.intact();
    const extent pairs = p.held() / 2;
    for (extent b = 0; b < p.batch; ++b) {
        for (extent t = 0; t < p.time; ++t) {
            for (extent h = 0; h < p.heads; ++h) {
                for (extent i = 0; i < p.head_size; ++i) {
                    const bool is_turned = (p.turned < 0 || h < p.turned) && i < 2 * pairs;
                    const extent other = p.layout == rotary_layout::interleaved ? i ^ 1 : i < pairs ? i + pairs : i - pairs;
                    const double magnitude = std::fabs(static_cast<double>(from(b, t, h, i))) +
                                             (is_turned ? std::fabs(static_cast<double>(from(b, t, h, other))) : 0);
                    const extent at = &to(b, t, h, i) - y.data();
                    const double old = p.mode == ht::write_mode::add ? static_cast<double>(before[at]) : 0;
                    const double expected = wanted(b, t, h, i) + old;
                    right = right && std::fabs(static_cast<double>(y[at]) - expected) <=
                                         bound_of<T>(p, magnitude, expected, old, is_turned);
                }
            }
        }
    }
    for (extent i = 0; i < p.count(); ++i) {  // between the heads
        if (i % (p.head_size + p.gap) >= p.head_size)
            right = right && static_cast<double>(y[i]) == static_cast<double>(before[i]);
    }
    if (p.mode == ht::write_mode::add) return right;
    ht::rotary(device, from, ht::const_view<float, 2>(table_view), from, p.options(), named);
    for (extent i = 0; i < p.count(); ++i) {
        if (i % (p.head_size + p.gap) < p.head_size)
            right = right && static_cast<double>(x[i]) == static_cast<double>(y[i]);
    }
    return right && x.intact();
}

/// Every kind of problem at a head_size.
template <class T, class Device, class Check>
void for_each_problem(Device& device, extent head_size, const Check& check) {
    for (const rotary_layout layout : {rotary_layout::half_split, rotary_layout::interleaved}) {
        problem p{.head_size = head_size, .layout = layout};
        check(device, p);
        p.positions = true, p.inverse = true, p.gap = 3, p.offset = 1;
        check(device, p);
        p.mode = ht::write_mode::add, p.heads = 5, p.turned = 3, p.gap = 8, p.offset = 0;
        check(device, p);
        p.columns = head_size / 4 * 2, p.mode = ht::write_mode::overwrite;
        check(device, p);
        p.turned = 0;
        check(device, p);
    }
}

/// A rotation and its inverse; properties of the rotation: position 0 is unchanged, lengths are preserved.
template <class Device>
void turns_and_back(Device& device) {
    const problem p{.batch = 1, .time = 9, .heads = 2, .head_size = 16};
    support::random data(3);
    const guarded<float> x(data.normals<float>(p.count())), y(p.count()), z(p.count());
    const guarded<float> table(p.time * p.head_size);
    const ht::view<float, 2> table_view(table.data(), {p.time, p.head_size});
    ht::fill_rotary_table(table_view);
    ht::rotary(device, x.const_view(p.shape()), table_view, y.view(p.shape()));
    ht::rotary(device, y.const_view(p.shape()), table_view, z.view(p.shape()), {.inverse = true});
    double largest = 0;
    for (extent i = 0; i < p.count(); ++i) largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
    for (extent i = 0; i < p.count(); ++i) {
        CHECK(std::fabs(static_cast<double>(z[i] - x[i])) <= 16 * ht::unit_roundoff<float> * largest);
        if (i < p.heads * p.head_size) CHECK(y[i] == x[i]);
    }
}

template <class Device>
void refuses(Device& device) {
    const guarded<float> x(48), table(16);
    const ht::view<float, 4> four(x.data(), {1, 3, 2, 8});
    const auto run = [&](const ht::shape<2>& of_table, const ht::rotary_options& options = {}) {
        ht::rotary(device, four, ht::view<float, 2>(table.data(), of_table), four, options);
    };
    CHECK_THROWS_WITH_AS(run({2, 8}), "rotary: 3 tokens in a row; the table has 2 positions", ht::shape_error);
    CHECK_THROWS_WITH_AS(run({3, 3}),
                         "rotary: the table has 3 columns; expected an even number, at most the 8 elements of a head",
                         ht::shape_error);
    CHECK_THROWS_AS(run({1, 10}), ht::shape_error);
    CHECK_THROWS_WITH_AS(run({3, 4}, {.heads = 3}), "rotary: 3 heads are to be rotated, and x (1, 3, 2, 8) has 2",
                         ht::shape_error);
    const ht::view<float, 4> gaps(x.data(), {1, 3, 2, 4}, {48, 16, 8, 2});
    CHECK_THROWS_AS(ht::rotary(device, gaps, ht::view<float, 2>(table.data(), {3, 4}), gaps), ht::shape_error);
    CHECK_THROWS_AS(ht::fill_rotary_table(ht::view<float, 2>(table.data(), {3, 4}), {.theta = -1}), ht::argument_error);
    // Empty tensors.
    const ht::view<float, 4> none(x.data(), {0, 3, 2, 4});
    ht::rotary(device, none, ht::view<float, 2>(table.data(), {3, 4}), none);
}

}  // namespace rotary_checks
