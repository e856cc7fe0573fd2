// SPDX-License-Identifier: MIT
/// \file
/// Keys and values in eight bits, on every device: the bits of the definition, the bounds that follow from it, and nothing
/// else written.
///
///     eight_bit_checks::as_defined(device);
///     eight_bit_checks::within_bounds(device);
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/cache_heads/eight_bit/reference.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>

#include "support/guarded.hpp"
#include "support/random.hpp"

namespace eight_bit_checks {

namespace ht = halftone;
using ht::extent;
using support::guarded;

/// Codes and scales of `slots` slots, and the values read from them.
template <class T>
struct cache {
    extent heads, slots, head_size;
    guarded<std::int8_t> codes{heads * slots * head_size};
    guarded<float> scales{heads * slots};
    guarded<T> values{heads * slots * head_size};

    ht::shape<3> shape() const { return {heads, slots, head_size}; }
    ht::kernel::quantize_heads_arguments<T> stores(const guarded<T>& rows, extent first_column,
                                                   const guarded<std::int32_t>& at) const {
        return {rows.const_view(ht::shape<2>{at.size(), first_column + heads * head_size}), first_column, at.const_view(),
                codes.view(shape()), scales.view(ht::shape<2>{heads, slots})};
    }
    ht::kernel::dequantize_heads_arguments<T> reads(const guarded<std::int32_t>& queries,
                                                    const guarded<std::int32_t>& keys, extent capacity) const {
        return {codes.const_view(shape()), scales.const_view(ht::shape<2>{heads, slots}), queries.const_view(),
                keys.const_view(), capacity, values.view(shape())};
    }
};

/// One row's vectors of one head each, stored and read again.
template <class T, class Device>
std::vector<float> stored(Device& device, const std::vector<T>& x) {
    const cache<T> one{1, 1, static_cast<extent>(x.size())};
    const guarded<T> rows(x);
    const guarded<std::int32_t> at(std::vector<std::int32_t>{0}), offsets(std::vector<std::int32_t>{0, 1, 1});
    ht::kernel::eight_bit_heads<Device>::quantize(device, one.stores(rows, 0, at));
    ht::kernel::eight_bit_heads<Device>::dequantize(device, one.reads(offsets, offsets, 1));
    std::vector<float> values;
    for (extent d = 0; d < one.head_size; ++d) values.push_back(static_cast<float>(one.values[d]));
    return values;
}

/// Sequences of `capacity` slots; `lengths` of them are filled, and those with a new token are read.
template <class T, class Device>
void check_sequences(Device& device, extent first_column, extent heads, extent head_size, extent capacity,
                     const std::vector<extent>& lengths, const std::vector<bool>& has_query) {
    support::random data(7);
    const auto sequences = static_cast<extent>(lengths.size());
    std::vector<std::int32_t> slots, queries{0}, keys{0};
    for (extent i = 0; i < sequences; ++i) {
        const extent length = lengths[static_cast<std::size_t>(i)];
        for (extent j = length; j-- > 0;) slots.push_back(static_cast<std::int32_t>(i * capacity + j));
        queries.insert(queries.end(), 2, queries.back() + (has_query[static_cast<std::size_t>(i)] ? 1 : 0));
        keys.push_back(static_cast<std::int32_t>(i * capacity + length));
        keys.push_back(static_cast<std::int32_t>((i + 1) * capacity));
    }
    const extent tokens = static_cast<extent>(slots.size());
    const guarded<T> rows(data.normals<T>(tokens * (first_column + heads * head_size)));
    const guarded<std::int32_t> at(slots), of_queries(queries), of_keys(keys);
    const cache<T> got{heads, sequences * capacity, head_size}, want{heads, sequences * capacity, head_size};
    ht::kernel::eight_bit_heads<Device>::quantize(device, got.stores(rows, first_column, at));
    ht::kernel::eight_bit_heads<Device>::dequantize(device, got.reads(of_queries, of_keys, capacity));
    ht::reference::quantize_heads(want.stores(rows, first_column, at));
    ht::reference::dequantize_heads(want.reads(of_queries, of_keys, capacity));
    CHECK(got.codes.same_bits(want.codes));
    CHECK(got.scales.same_bits(want.scales));
    CHECK(got.values.same_bits(want.values));
    CHECK((got.codes.intact() && got.scales.intact() && got.values.intact()));
}

template <class Device>
void as_defined(Device& device) {
    check_sequences<float>(device, 3, 2, 4, 5, {3, 0, 5}, {true, false, true});
    check_sequences<ht::bfloat16>(device, 8, 6, 7, 9, {9, 2}, {false, true});
    check_sequences<ht::float16>(device, 0, 1, 1, 1, {1}, {true});
    check_sequences<ht::bfloat16>(device, 64, 4, 64, 70, {66, 1, 70}, {true, true, true});
    check_sequences<float>(device, 5, 2, 33, 3, {}, {});
    const cache<float> one{2, 2, 2};
    const guarded<float> rows(12);
    const guarded<std::int32_t> at(std::vector<std::int32_t>{0, 1});
    auto wrong = one.stores(rows, 3, at);
    wrong.rows = rows.const_view(ht::shape<2>{2, 6});
    CHECK_THROWS_WITH_AS(ht::kernel::eight_bit_heads<Device>::quantize(device, wrong),
                         "eight_bit_heads: rows is (2, 6); expected (2, 7)", ht::shape_error);
    CHECK_THROWS_AS(ht::kernel::eight_bit_heads<Device>::dequantize(device, one.reads(at, at, 1)), ht::shape_error);
}

/// |x - value| is at most half a scale, for the rounding to an integer; 128 2^-24 scales, for the rounding of the quotient and
/// of the scale; what a subnormal scale loses, 127 2^-150; and half a unit in the last slot of the product and of T.
template <class T, class Device>
void check_bound(Device& device, const std::vector<T>& x) {
    double amax = 0;
    for (const T& element : x) amax = std::max(amax, std::fabs(static_cast<double>(static_cast<float>(element))));
    const double scale = amax / 127, unit = ht::unit_roundoff<T>,
                 least = ht::number_traits<T>::min_subnormal;
    const std::vector<float> values = stored(device, x);
    for (std::size_t d = 0; d < x.size(); ++d) {
        const double value = values[d], before = static_cast<float>(x[d]);
        const double bound = scale * (0.5 + 128 * 0x1p-24) + 127 * 0x1p-149 + std::fabs(value) * (unit + 0x1p-24) * 1.01 + least;
        CAPTURE(before);
        CAPTURE(value);
        CHECK(std::isfinite(value));  // an infinity would make the bound infinite, too
        CHECK(std::fabs(value - before) <= bound);
    }
}

template <class Device>
void within_bounds(Device& device) {
    support::random data(2);
    for (const extent width : {1, 5, 16, 64, 67, 128, 256}) {
        check_bound<float>(device, data.normals<float>(width));
        check_bound<ht::bfloat16>(device, data.normals<ht::bfloat16>(width, 30));
        check_bound<ht::float16>(device, data.normals<ht::float16>(width, 0.01));
    }
    const float most = std::numeric_limits<float>::max(), tiny = 0x1p-149f;
    check_bound<float>(device, {most, -most, most / 2, most / 200, 0, tiny});
    check_bound<float>(device, {0x1p-126f, 0x1.8p-127f, -0x1p-130f, tiny});
    check_bound<float>(device, {190 * tiny, -100 * tiny, tiny});
    check_bound<float>(device, {63 * tiny, -40 * tiny, tiny});
    // 127 scales of the largest number are finite.
    for (const float x : {most, std::nextafterf(most, 0.0f), most / 128 * 127}) check_bound<float>(device, {x, -x, 1});
    for (const float x : {0x1.fep127f, 0x1p127f})
        check_bound<ht::bfloat16>(device, {ht::bfloat16(x), ht::bfloat16(-x), ht::bfloat16(1.0f)});
    check_bound<ht::float16>(device, {ht::float16(65504.0f), ht::float16(-65504.0f), ht::float16(1.0f)});
    // What is a code is its own value: 127 scales are the largest.
    CHECK(stored<float>(device, {127, -127, 64, -1, 0, 0.5f, 1.5f, -2.5f}) == std::vector<float>{127, -127, 64, -1, 0, 0, 2, -2});
    CHECK(stored<float>(device, {0, -0.0f, 0}) == std::vector<float>{0, 0, 0});
}

/// A vector with an element that is not finite becomes NaN as a whole; its neighbours stay as they are.
template <class Device>
void passes_on_infinities(Device& device) {
    const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    for (const float bad : {infinity, -infinity, nan}) {
        for (const std::size_t at : {std::size_t{0}, std::size_t{17}}) {
            std::vector<float> x(18, 1.0f);
            x[at] = bad;
            for (const float value : stored(device, x)) CHECK(std::isnan(value));
        }
    }
    CHECK(stored<float>(device, {1, 1}) == std::vector<float>{1, 1});
}

/// Places that the cache does not have: false if something else is touched than where the others belong.
template <class Device>
bool stays_inside(Device& device, const std::vector<std::int32_t>& slots) {
    const cache<float> two{1, 2, 1};
    const guarded<float> rows(std::vector<float>{1, 2, 3});
    const guarded<std::int32_t> at(slots);
    for (extent i = 0; i < 2; ++i) two.codes[i] = 0, two.scales[i] = 0;
    ht::kernel::eight_bit_heads<Device>::quantize(device, two.stores(rows, 0, at));
    return two.codes.intact() && two.scales.intact() && two.codes[0] == 0 && two.codes[1] == 127 && two.scales[0] == 0;
}

}  // namespace eight_bit_checks
