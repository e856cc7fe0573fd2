// SPDX-License-Identifier: MIT
/// \file
/// Tests of a conversion, for every device.
///
///     convert_checks::converts_each<float, ht::bfloat16>(device, 1009);
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/convert/convert.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/float8.hpp>
#include <halftone/number/saturate.hpp>

#include "support/guarded.hpp"
#include "support/random.hpp"

namespace convert_checks {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::guarded;

template <class X_, class Y_>
struct types {
    using X = X_;
    using Y = Y_;
};
using down_bf16 = types<float, bfloat16>;
using down_f16 = types<float, float16>;
using up_bf16 = types<bfloat16, float>;
using up_f16 = types<float16, float>;
using across = types<float16, bfloat16>;
using back = types<bfloat16, float16>;
using copy = types<float, float>;
using down_e4m3 = types<bfloat16, ht::float8_e4m3>;
using up_e5m2 = types<ht::float8_e5m2, float>;

template <class T>
T any_bits(support::random& data) {
    const std::uint32_t bits = data.bits();
    T value;
    std::memcpy(static_cast<void*>(&value), &bits, sizeof value);
    return value;
}

/// Whether both have the same bits or are NaN: kernels may return any NaN.
template <class T>
bool same(T a, T b) {
    return std::memcmp(&a, &b, sizeof a) == 0 || (ht::is_nan(a) && ht::is_nan(b));
}

/// Every element is converted as a single number is, at any alignment, with and without a factor, also in rows with a stride.
template <class X, class Y, class Device>
void converts_each(Device& device, extent count, extent from_offset = 1, extent to_offset = 3) {
    CAPTURE(count);
    using convert = ht::kernel::convert<Device>;
    support::random data(5);
    const guarded<X> from(count, from_offset);
    for (extent i = 0; i < count; ++i) from[i] = any_bits<X>(data);
    if constexpr (sizeof(X) == 2) {
        for (extent i = 0; i < count && i < 65536; ++i) from[i] = X::from_bits(static_cast<std::uint16_t>(i));
    }
    if constexpr (sizeof(X) == 1) {
        for (extent i = 0; i < count && i < 256; ++i) from[i] = X::from_bits(static_cast<std::uint8_t>(i));
    }
    const guarded<Y> to(count, to_offset), scaled(count, 5);
    ht::convert(device, from.const_view(), to.view());
    ht::convert(device, from.const_view(), scaled.view(), 1.25f);
    extent wrong = 0, wrong_scaled = 0;
    for (extent i = 0; i < count; ++i) {
        const float value = static_cast<float>(from[i]);
        wrong += same(to[i], static_cast<Y>(value)) ? 0 : 1;
        wrong_scaled += same(scaled[i], static_cast<Y>(value * 1.25f)) ? 0 : 1;
    }
    CHECK(wrong == 0);
    CHECK(wrong_scaled == 0);
    CHECK(to.intact());
    CHECK(scaled.intact());

    // The gaps between rows with a stride are unchanged.
    if (count % 3 == 0) {
        const extent width = count / 3, stride = width + 2;
        const guarded<Y> padded(3 * stride);
        const auto before = padded[0];
        convert::run(device, from.const_view(ht::shape<2>{3, width}),
                     ht::view<Y, 2>(padded.data(), {3, width}, {stride, 1}));
        extent wrong_rows = 0;
        for (extent i = 0; i < 3; ++i) {
            for (extent j = 0; j < stride; ++j) {
                wrong_rows += same(padded[i * stride + j], j < width ? to[i * width + j] : before) ? 0 : 1;
            }
        }
        CHECK(wrong_rows == 0);
        CHECK(padded.intact());
    }
}

/// Numbers beyond the largest one saturate; NaNs remain NaN.
template <class X, class Y, class Device>
void saturates(Device& device, extent count) {
    CAPTURE(count);
    support::random data(6);
    const guarded<X> from(count, 1);
    for (extent i = 0; i < count; ++i) from[i] = any_bits<X>(data);
    const guarded<Y> to(count, 3), scaled(count);
    ht::convert_saturated(device, from.const_view(), to.view());
    ht::convert_saturated(device, from.const_view(), scaled.view(), 64);
    extent wrong = 0, stopped = 0;
    for (extent i = 0; i < count; ++i) {
        const float value = static_cast<float>(from[i]);
        wrong += same(to[i], ht::saturate<Y>(value)) && same(scaled[i], ht::saturate<Y>(value * 64)) ? 0 : 1;
        stopped += same(to[i], static_cast<Y>(value)) ? 0 : 1;
    }
    CHECK(wrong == 0);
    CHECK((stopped > 0 || count < 20));
    CHECK(to.intact());
    CHECK(scaled.intact());
}

template <class Device>
void scales_in_place(Device& device) {
    support::random data(3);
    const auto values = data.normals<float>(37);
    const guarded<float> x(values);
    ht::kernel::convert<Device>::run(device, x.const_view(), x.view(), 0.5f);
    for (extent i = 0; i < x.size(); ++i) CHECK(x[i] == 0.5f * values[static_cast<std::size_t>(i)]);
}

template <class Device>
void refuses(Device& device) {
    using convert = ht::kernel::convert<Device>;
    const guarded<float> x(12), y(12);
    CHECK_THROWS_WITH_AS((convert::run(device, x.const_view(ht::shape<2>{3, 4}), y.view(ht::shape<2>{4, 3}))),
                         "convert: to is (4, 3); expected (3, 4)", ht::shape_error);
    CHECK_THROWS_WITH_AS(
        (convert::run(device, x.const_view(ht::shape<2>{3, 4}), ht::view<float, 2>(y.data(), {3, 4}, {1, 3}))),
        "convert: to (3, 4) has gaps within its rows; its strides are (1, 3)", ht::shape_error);
    CHECK_THROWS_WITH_AS((convert::run(device, x.const_view(ht::shape<3>{1, 3, 4}),
                                       ht::view<float, 3>(y.data(), {1, 3, 4}, {12, 1, 3}))),
                         "convert: to (1, 3, 4) is not contiguous; its strides are (12, 1, 3)", ht::shape_error);
    convert::run(device, ht::const_view<float, 1>(nullptr, {0}), ht::view<float, 1>(nullptr, {0}));
}

}  // namespace convert_checks
