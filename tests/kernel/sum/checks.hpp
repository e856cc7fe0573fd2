// SPDX-License-Identifier: MIT
/// \file
/// Sums over all elements, of any device, against their definition.
///
///     sum_checks::within_bounds<float, ht::bfloat16, float>(device, count);
#pragma once

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/common/rows/partition.hpp>
#include <halftone/kernel/sum/reference.hpp>
#include <halftone/kernel/sum/sum.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/float16.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace sum_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::guarded;

constexpr auto squared_error = [](auto x, auto y) { return ht::square(x - y); };

template <class Y>
ht::view<Y, 0> scalar(const guarded<Y>& memory) {
    return {memory.data(), ht::shape<0>{}};
}

/// apart: the distance in elements of the arrays from a vector-aligned address; 0: all are aligned.
template <class X, class T, class Y, class Device>
void within_bounds(Device& device, extent count, extent apart = 1) {
    CAPTURE(count);
    support::random data(static_cast<std::uint64_t>(count));
    const guarded<X> x(data.normals<X>(count, 1, 0.5), 3 * apart);
    const guarded<T> t(data.normals<T>(count), apart);
    const guarded<Y> out(1);
    const auto e = ht::trace<2>(squared_error);
    const double factor = 1.0 / static_cast<double>(count);
    ht::kernel::sum<Device>::run(device, e, ht::make_pack(x.const_view(), t.const_view()), factor, scalar(out));

    double want = 0;
    ht::reference::sum(e, ht::make_pack(x.const_view(), t.const_view()), factor, ht::view<double, 0>(&want, {}));
    // A term is rounded twice, in the difference, which is squared, and in the square; all terms are positive.
    const extent longest = count < ht::kernel::sum_piece ? count : ht::kernel::sum_piece;
    const double roundings = static_cast<double>(3 + ht::kernel::sum_depth(longest));
    support::comparison c;
    c.expect(static_cast<double>(out[0]), want, support::rounded<Y>(want, support::gamma(roundings) * want));
    CHECK_WITHIN(c);
    CHECK(out.intact());

    // The free function, for inputs of any rank.
    const guarded<Y> whole(1);
    const ht::shape<2> shape{1, count};
    ht::sum(device, squared_error, x.const_view(shape), t.const_view(shape), scalar(whole));
    ht::reference::sum(e, ht::make_pack(x.const_view(), t.const_view()), 1.0, ht::view<double, 0>(&want, {}));
    support::comparison of_all;
    of_all.expect(static_cast<double>(whole[0]), want, support::rounded<Y>(want, support::gamma(roundings) * want));
    CHECK_WITHIN(of_all);
    CHECK(whole.intact());
}

/// Elements beyond the end do not count, even if the function of 0 is 1.
template <class Device>
void ends_where_it_should(Device& device, extent count, extent apart = 1) {
    const auto e = ht::trace<1>([](auto x) { return x + 1; });
    const guarded<float> x(std::vector<float>(static_cast<std::size_t>(count), 2.0f), apart), out(1);
    ht::kernel::sum<Device>::run(device, e, ht::make_pack(x.const_view()), 1.0, scalar(out));
    CHECK(out[0] == static_cast<float>(3 * count));
}

template <class Device>
void nothing_nan_and_wrong_arguments(Device& device) {
    using sum = ht::kernel::sum<Device>;
    const guarded<float> out(1), x(4), y(3);
    const auto e = ht::trace<2>(squared_error);
    const ht::const_view<float, 1> nothing(nullptr, {0});
    sum::run(device, e, ht::make_pack(nothing, nothing), 1.0, scalar(out));
    CHECK(out[0] == 0);
    sum::run(device, e, ht::make_pack(y.const_view(), y.const_view()), 1.0,
             scalar(out));  // guarded memory begins as NaN
    CHECK(ht::is_nan(out[0]));
    CHECK_THROWS_WITH_AS(sum::run(device, e, ht::make_pack(x.const_view(), y.const_view()), 1.0, scalar(out)),
                         "sum: an input is (3); expected (4)", ht::shape_error);
}

}  // namespace sum_checks
