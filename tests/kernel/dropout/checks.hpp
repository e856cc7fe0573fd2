// SPDX-License-Identifier: MIT
/// \file
/// Tests of dropout, for every device.
///
///     dropout_checks::within_bounds<ht::bfloat16, float>(device, 1009, 0.1f);
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/dropout/dropout.hpp>
#include <halftone/kernel/dropout/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/classify.hpp>

#include "support/bounds.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"

namespace dropout_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::kernel::dropout_draw;
using ht::kernel::random_record;
using support::guarded;

constexpr random_record record{0x123456789abcdefu, 7};
constexpr std::uint32_t tensor = 3;

/// The record in the device's memory.
template <class Device>
class own_record {
  public:
    explicit own_record(Device& device, const random_record& r = record)
        : memory_(device.memory(), sizeof r, ht::memory_kind::other) {
        device.memory().write(memory_.data(), &r, sizeof r);
    }
    const random_record* data() const { return reinterpret_cast<const random_record*>(memory_.data()); }

  private:
    ht::buffer memory_;
};

/// Compares elements with the definition: dropped ones exactly, the others within the roundings of the scale, the product and the
/// sum. With and without a base, and in write mode `add`.
template <class X, class Y, class Device>
bool is_right(Device& device, extent count, float p, extent from_offset, extent to_offset) {
    support::random data(5);
    const own_record<Device> own(device);
    const guarded<X> x(data.normals<X>(count), from_offset);
    const guarded<Y> base(data.normals<Y>(count), to_offset), y(count, to_offset), sum(count, to_offset);
    const dropout_draw draw = dropout_draw::of(own.data(), tensor, p);
    const double share = static_cast<double>(draw.kept_from) * 0x1p-32;
    ht::dropout(device, x.const_view(), y.view(), draw);
    ht::dropout(device, x.const_view(), base.const_view(), sum.view(), draw);
    std::vector<double> want(static_cast<std::size_t>(count));
    bool right = y.intact() && sum.intact();
    for (const bool with_base : {false, true}) {
        const guarded<Y>& found = with_base ? sum : y;
        ht::reference::dropout(x.const_view(), with_base ? base.const_view() : ht::const_view<Y, 1>{},
                               ht::view<double, 1>(want.data(), {count}), record.seed, record.pass, tensor, share);
        for (extent i = 0; i < count; ++i) {
            const double expected = want[static_cast<std::size_t>(i)], b = with_base ? static_cast<double>(base[i]) : 0;
            const bool dropped = ht::reference::is_dropped(record.seed, record.pass, tensor, i, share);
            const double bound = dropped ? 0 : support::gamma(3) * (std::fabs(expected - b) + std::fabs(expected));
            right = right && std::fabs(static_cast<double>(found[i]) - expected) <=
                                 (dropped ? 0 : support::rounded<Y>(expected, bound));
        }
    }
    // In place of the base.
    ht::dropout(device, x.const_view(), base.const_view(), base.view(), draw);
    return right && base.same_bits(sum) && base.intact();
}

template <class Device>
void ends_of_the_range(Device& device) {
    constexpr extent count = 131;
    const own_record<Device> own(device);
    const guarded<float> x(count), y(count);
    for (extent i = 0; i < count; ++i)
        x[i] = i % 3 == 0   ? std::numeric_limits<float>::quiet_NaN()
               : i % 3 == 1 ? std::numeric_limits<float>::infinity()
                            : 1.5f;
    ht::kernel::dropout<Device>::run(device, x.const_view(), ht::const_view<float, 1>{}, y.view(),
                                     dropout_draw::of(own.data(), tensor, 1));
    extent wrong = 0;
    for (extent i = 0; i < count; ++i) wrong += ht::bit_cast<std::uint32_t>(y[i]) == 0 ? 0 : 1;
    CHECK(wrong == 0);
    ht::kernel::dropout<Device>::run(device, x.const_view(), ht::const_view<float, 1>{}, y.view(),
                                     dropout_draw::of(own.data(), tensor, 0));
    wrong = 0;  // of a NaN a device preserves only that it is one
    for (extent i = 0; i < count; ++i) wrong += y[i] == x[i] || (ht::is_nan(x[i]) && ht::is_nan(y[i])) ? 0 : 1;
    CHECK(wrong == 0);
    ht::kernel::dropout<Device>::run(device, ht::const_view<float, 1>(nullptr, {0}), ht::const_view<float, 1>{},
                                     ht::view<float, 1>(nullptr, {0}), dropout_draw::of(own.data(), tensor, 0.5f));
    CHECK_THROWS_WITH_AS(
        (ht::kernel::dropout<Device>::run(device, x.const_view(), ht::const_view<float, 1>{}, y.view(ht::shape<1>{3}),
                                          dropout_draw::of(own.data(), tensor, 0.5f))),
        "dropout: y is (3); expected (131)", ht::shape_error);
}

/// The numbers of dropped elements, among all and among those with a dropped neighbour, are binomial: within six standard
/// deviations of the mean. Another seed, pass or tensor gives another mask.
template <class Device>
void masks_are_random(Device& device, extent count) {
    const guarded<float> x(count), y(count);
    for (extent i = 0; i < count; ++i) x[i] = 1;
    const auto mask = [&](const random_record& r, std::uint32_t which, float p) {
        const own_record<Device> own(device, r);
        ht::kernel::dropout<Device>::run(device, x.const_view(), ht::const_view<float, 1>{}, y.view(),
                                         dropout_draw::of(own.data(), which, p));
        return std::vector<float>(y.data(), y.data() + count);
    };
    const auto n = static_cast<double>(count);
    const auto within = [](double found, double trials, double q) {
        return std::fabs(found - trials * q) <= 6 * std::sqrt(trials * q * (1 - q));
    };
    for (const float p : {0.1f, 0.5f, 0.75f}) {
        CAPTURE(p);
        const auto q = static_cast<double>(p);
        const std::vector<float> kept = mask(record, tensor, p);
        double dropped = 0, pairs = 0, others = 0;
        for (std::size_t i = 0; i < kept.size(); ++i) {
            others += kept[i] == 0 || kept[i] == static_cast<float>(1 / (1 - q)) ? 0 : 1;
            dropped += kept[i] == 0 ? 1 : 0;
            if (i % 2 == 1) pairs += kept[i] == 0 && kept[i - 1] == 0 ? 1 : 0;
        }
        CHECK(others == 0);
        CHECK(within(dropped, n, q));
        CHECK(within(pairs, n / 2, q * q));
        for (const std::vector<float>& other :
             {mask({record.seed + 1, record.pass}, tensor, p), mask({record.seed, record.pass + 1}, tensor, p),
              mask(record, tensor + 1, p)}) {
            double both = 0;
            for (std::size_t i = 0; i < kept.size(); ++i) both += kept[i] == 0 && other[i] == 0 ? 1 : 0;
            CHECK(within(both, n, q * q));
        }
    }
}

}  // namespace dropout_checks
