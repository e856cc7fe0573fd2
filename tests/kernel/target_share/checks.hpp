// SPDX-License-Identifier: MIT
/// \file
/// Tests of counting targets, for every device.
///
///     target_share_checks::equals_definition(device);
#pragma once

#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/target_share/reference.hpp>

#include "support/guarded.hpp"
#include "support/random.hpp"

namespace target_share_checks {

namespace ht = halftone;
namespace kernel = ht::kernel;
using ht::extent;
using support::guarded;

template <class Device>
kernel::target_counts run(Device& device, const ht::const_view<std::int32_t, 1>& targets,
                          const ht::const_view<std::int32_t, 1>& of) {
    kernel::target_counts counts{-1, -1, -1};
    ht::target_share(device, targets, of, &counts);
    return counts;
}

/// Targets of which this number among ten is not ignored.
inline std::vector<std::int32_t> targets(extent n, int of_ten, std::uint64_t seed) {
    support::random data(seed);
    std::vector<std::int32_t> all = data.indices(n, 1000);
    for (std::int32_t& t : all) t = t % 10 < of_ten ? t : -100;
    return all;
}

template <class Device>
void equals_definition(Device& device) {
    for (const extent n : {1, 7, 255, 256, 257, 1000, 5003}) {
        for (const int of_ten : {0, 1, 5, 10}) {
            CAPTURE(n);
            CAPTURE(of_ten);
            const guarded<std::int32_t> part(targets(n, of_ten, 1), 1), rest(targets(3 * n, 7, 2), 0);
            const double counted = ht::reference::counted(part.const_view()),
                         of = ht::reference::counted(rest.const_view());
            const kernel::target_counts c = run(device, part.const_view(), rest.const_view());
            CHECK(c.counted == counted);
            CHECK(c.of == of);
            CHECK(c.share == (counted == 0 ? 0 : counted / of));
            const kernel::target_counts whole = run(device, part.const_view(), part.const_view());
            CHECK(whole.share == (counted == 0 ? 0 : 1));
            CHECK((part.intact() && rest.intact()));
        }
    }
    // Parts with equal numbers of targets: each share is 1 / k, rounded to double.
    for (extent k = 1; k < 40; ++k) {
        const guarded<std::int32_t> whole(targets(31 * k, 10, 3), 0);
        const double share = run(device, ht::const_view<std::int32_t, 1>(whole.data(), {31}), whole.const_view()).share;
        CHECK(share == 1 / static_cast<double>(k));
    }
    const ht::const_view<std::int32_t, 1> none(nullptr, {0});
    CHECK(run(device, none, none).share == 0);
}

template <class Device>
void refuses(Device& device) {
    const guarded<std::int32_t> t(10);
    const ht::const_view<std::int32_t, 1> pieces(t.data(), {5}, {2}), whole(t.data(), {10});
    CHECK_THROWS_AS(run(device, pieces, whole), ht::shape_error);
    CHECK_THROWS_AS(run(device, whole, pieces), ht::shape_error);
}

}  // namespace target_share_checks
