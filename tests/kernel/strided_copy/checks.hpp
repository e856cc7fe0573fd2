// SPDX-License-Identifier: MIT
/// \file
/// Tests of copies between strided views on every device: they write the bytes of the definition, and no others.
#pragma once

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/strided_copy/reference.hpp>
#include <halftone/kernel/strided_copy/strided_copy.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float8.hpp>

#include "support/guarded.hpp"

namespace strided_copy_checks {

namespace ht = halftone;
using ht::axes, ht::extent;
using support::guarded;

template <class T>
T value_of(extent i) {
    if constexpr (requires(T t) { t.bits(); }) {
        using bits = decltype(T{}.bits());
        return T::from_bits(static_cast<bits>(7 * i + 1));
    } else {
        return static_cast<T>(7 * i + 1);
    }
}

/// Copies a tensor of shape s, rearranged by `rearranged`, into a contiguous one, and that into another tensor rearranged in
/// the same way.
template <class T, class Device, int Rank, class F>
bool is_right(Device& device, const ht::shape<Rank>& s, extent offset, const F& rearranged) {
    const guarded<T> x(s.size(), offset), back(s.size(), offset), want_back(s.size(), offset);
    for (extent i = 0; i < s.size(); ++i) x[i] = value_of<T>(i), back[i] = want_back[i] = value_of<T>(-i);
    const auto from = rearranged(x.const_view(s));
    const auto result = from.shape();
    const guarded<T> y(result.size(), 2 * offset), want(result.size(), 2 * offset);
    ht::contiguous(device, from, y.view(result));
    ht::reference::strided_copy(from, want.view(result));
    bool right = y.same_bits(want) && y.intact();
    const auto to = rearranged(back.view(s));
    if (to.shows_elements_once()) {
        ht::contiguous(device, y.const_view(result), to);
        ht::reference::strided_copy(y.const_view(result), rearranged(want_back.view(s)));
        right = right && back.same_bits(want_back) && back.intact();
    }
    return right;
}

template <class T, class Device>
void orders(Device& device, extent offset) {
    using ht::shape;
    CAPTURE(offset);
    CHECK(is_right<T>(device, shape<1>{1}, offset, [](const auto& v) { return v; }));
    CHECK(is_right<T>(device, shape<1>{333}, offset, [](const auto& v) { return ht::flip(v, axes<0>); }));
    for (const extent rows : {1, 3, 32, 37, 64}) {
        for (const extent columns : {1, 8, 33, 64, 100}) {
            CAPTURE(rows);
            CAPTURE(columns);
            CHECK(is_right<T>(device, shape<2>{rows, columns}, offset, [](const auto& v) { return ht::transpose(v); }));
            CHECK(is_right<T>(device, shape<2>{rows, columns}, offset,
                              [](const auto& v) { return ht::slice(v, axes<1>, 0, 100, 3); }));
        }
    }
    CHECK(is_right<T>(device, shape<4>{2, 3, 5, 8}, offset,
                      [](const auto& v) { return ht::permute(v, axes<0, 2, 1, 3>); }));
    CHECK(is_right<T>(device, shape<4>{3, 9, 2, 17}, offset,
                      [](const auto& v) { return ht::permute(v, axes<3, 2, 1, 0>); }));
    CHECK(is_right<T>(device, shape<3>{9, 4, 10}, offset, [](const auto& v) { return ht::permute(v, axes<2, 0, 1>); }));
    CHECK(is_right<T>(device, shape<3>{4, 6, 7}, offset,
                      [](const auto& v) { return ht::flip(ht::transpose(v, axes<0, 2>), axes<0, 1>); }));
    CHECK(is_right<T>(device, shape<3>{4, 6, 16}, offset,
                      [](const auto& v) { return ht::narrow(ht::select(v, axes<1>, -2), axes<1>, 8, 8); }));
    CHECK(is_right<T>(device, shape<2>{3, 1}, offset, [](const auto& v) { return ht::expand(v, shape<3>{5, -1, 9}); }));
    CHECK(is_right<T>(device, shape<1>{16}, offset, [](const auto& v) { return ht::expand(v, shape<2>{7, 16}); }));
    CHECK(is_right<T>(device, shape<8>{2, 1, 2, 2, 1, 3, 2, 2}, offset,
                      [](const auto& v) { return ht::permute(v, axes<7, 5, 3, 1, 0, 2, 4, 6>); }));
    CHECK(is_right<T>(device, shape<3>{4, 0, 7}, offset, [](const auto& v) { return ht::transpose(v, axes<0, 2>); }));
}

template <class Device>
void every_size(Device& device) {
    for (const extent offset : {0, 1}) {
        orders<ht::float8_e4m3>(device, offset);
        orders<ht::bfloat16>(device, offset);
        orders<float>(device, offset);
        orders<double>(device, offset);
    }
}

template <class Device>
void refusals(Device& device) {
    const guarded<float> x(12), y(12);
    CHECK_THROWS_WITH_AS(ht::contiguous(device, ht::transpose(x.view(ht::shape<2>{3, 4})), y.view(ht::shape<2>{3, 4})),
                         "contiguous: the result is (3, 4); expected (4, 3)", ht::shape_error);
    CHECK_THROWS_WITH_AS(
        ht::contiguous(device, x.view(ht::shape<2>{3, 4}), ht::view<float, 2>(y.data(), {3, 4}, {0, 1})),
        "contiguous: the result (3, 4) is written to and overlaps itself; its strides are (0, 1)", ht::shape_error);
}

}  // namespace strided_copy_checks
