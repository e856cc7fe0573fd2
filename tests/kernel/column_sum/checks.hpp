// SPDX-License-Identifier: MIT
/// \file
/// Column sums of any device against their definition.
///
///     column_sum_checks::within_bounds<column_sum_checks::mixed>(device, rows, width, padding, write_mode::add);
#pragma once

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/column_sum/column_sum.hpp>
#include <halftone/kernel/column_sum/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace column_sum_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using ht::write_mode;
using support::guarded;
using doubles = std::vector<double>;

template <class X_, class Y_>
struct types {
    using X = X_;
    using Y = Y_;
};
using all_float = types<float, float>;
using mixed = types<bfloat16, float>;
using narrow = types<float16, float16>;

/// apart: the distance in elements of the arrays from a vector-aligned address; 0: all are aligned.
template <class M, class Device>
void within_bounds(Device& device, extent rows, extent width, extent padding, write_mode mode, extent apart = 1) {
    CAPTURE(rows);
    CAPTURE(width);
    using X = typename M::X;
    using Y = typename M::Y;
    support::random data(static_cast<std::uint64_t>(width));
    const extent stride = width + padding;
    const guarded<X> memory(data.normals<X>(rows * stride, 1, 0.25), apart);
    const ht::const_view<X, 2> x(memory.data(), {rows, width}, {stride, 1});
    const auto old = data.normals<Y>(width);
    const guarded<Y> out(old, 3 * apart);
    ht::column_sum(device, x, out.view(), mode);

    doubles want(static_cast<std::size_t>(width));
    ht::reference::column_sum(x, ht::view<double, 1>(want.data(), {width}));
    support::comparison c;
    for (extent j = 0; j < width; ++j) {
        const double before = mode == write_mode::add ? static_cast<double>(old[static_cast<std::size_t>(j)]) : 0;
        double size = std::fabs(before);
        for (extent i = 0; i < rows; ++i) size += std::fabs(static_cast<double>(x(i, j)));
        const double wanted = want[static_cast<std::size_t>(j)] + before;
        c.expect(static_cast<double>(out[j]), wanted,
                 support::rounded<Y>(wanted, support::gamma(static_cast<double>(rows)) * size));
    }
    CHECK_WITHIN(c);
    CHECK(out.intact());
}

template <class Device>
void no_rows(Device& device) {
    const guarded<float> out(std::vector<float>{1, 2, 3, 4});
    ht::kernel::column_sum<Device>::run(device, ht::view<float, 2>(nullptr, {0, 4}), out.view(), write_mode::add);
    CHECK(out[3] == 4);
    ht::kernel::column_sum<Device>::run(device, ht::view<float, 2>(nullptr, {0, 4}), out.view());
    CHECK(out[3] == 0);
}

}  // namespace column_sum_checks
