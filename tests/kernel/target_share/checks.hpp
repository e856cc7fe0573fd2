// SPDX-License-Identifier: MIT
/// \file
/// Tests of what losses are means over, for every device.
///
///     target_share_checks::equals_definition(device);
#pragma once

#include <cmath>
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
kernel::target_counts run(Device& device, const ht::loss_divisor& micro, const ht::loss_divisor& of) {
    kernel::target_counts counts{-1, -1, -1};
    ht::target_share(device, micro, of, &counts);
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
            const double counted = ht::reference::divisor_value(part.const_view()),
                         of = ht::reference::divisor_value(rest.const_view());
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

inline std::vector<float> magnitudes(extent n, std::uint64_t seed) {
    std::vector<float> all = support::random(seed).normals<float>(n);
    for (float& x : all) x = std::fabs(x);
    return all;
}

/// Classes with weights, some of them 0, another target that is ignored, which is a class, and sums of floats. A sum in double of n
/// floats is within n 2^-53 of the definition's.
template <class Device>
void weights_and_sums(Device& device) {
    const guarded<float> weight(magnitudes(1000, 4), 1);
    for (extent i = 0; i < 1000; i += 3) weight[i] = 0;
    const auto check = [&](const ht::loss_divisor& micro, const ht::loss_divisor& of, extent n) {
        const kernel::target_counts c = run(device, micro, of);
        const double counted = ht::reference::divisor_value(micro), all = ht::reference::divisor_value(of), bound = static_cast<double>(n) * 0x1p-53;
        CHECK(std::fabs(c.counted - counted) <= bound * counted);
        CHECK(std::fabs(c.of - all) <= bound * all);
        CHECK(c.share == (c.counted == 0 ? 0 : c.counted / c.of));
        return c;
    };
    for (const extent n : {1, 7, 256, 257, 5003}) {
        CAPTURE(n);
        const guarded<std::int32_t> part(targets(n, 5, 1), 1), rest(targets(3 * n, 7, 2), 0);
        const guarded<float> some(magnitudes(n, 5), 1), more(magnitudes(2 * n, 6));
        for (const std::int32_t ignored : {-100, 7}) {
            // Targets of -100 that are not ignored are no classes.
            const bool has_weights = ignored == -100;
            const ht::const_view<float, 1> w = has_weights ? weight.const_view() : ht::const_view<float, 1>{};
            check({part.const_view(), ignored, w}, {rest.const_view(), ignored, w}, 3 * n);
        }
        check(some.const_view(), more.const_view(), 2 * n);
        check({part.const_view(), -100, weight.const_view()}, 2.5, n);
        CHECK((part.intact() && rest.intact() && some.intact() && weight.intact()));
    }
    const guarded<std::int32_t> classes(std::vector<std::int32_t>{4, 4, 7, 7, 3});
    CHECK(check({classes.const_view(), 7, weight.const_view()}, 10, 8).counted == 2 * static_cast<double>(weight[4]));
    CHECK(check({classes.const_view(), 4, {}}, 12, 8).share == 0.25);
    CHECK(check(ht::const_view<float, 1>{}, 0, 1).share == 0);
    for (const std::int32_t none : {-1, 1000}) {
        classes[1] = none;
        CHECK(std::isnan(run(device, {classes.const_view(), 7, weight.const_view()}, 1).counted));
        CHECK(run(device, {classes.const_view(), none, weight.const_view()}, 1).counted > 0);
    }
}

template <class Device>
void refuses(Device& device) {
    const guarded<std::int32_t> t(10);
    const guarded<float> f(10);
    const ht::const_view<std::int32_t, 1> pieces(t.data(), {5}, {2}), whole(t.data(), {10});
    const ht::const_view<float, 1> weights_apart(f.data(), {5}, {2});
    CHECK_THROWS_AS(run(device, pieces, whole), ht::shape_error);
    CHECK_THROWS_AS(run(device, whole, pieces), ht::shape_error);
    CHECK_THROWS_AS(run(device, {whole, -100, weights_apart}, whole), ht::shape_error);
    CHECK_THROWS_AS(run(device, weights_apart, whole), ht::shape_error);
    CHECK_THROWS_AS(run(device, whole, -1), ht::argument_error);
}

}  // namespace target_share_checks
