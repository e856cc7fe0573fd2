// SPDX-License-Identifier: MIT
/// \file
/// Tests of copying new keys and values into a key-value cache, for every device: the bytes of the definition are written, and
/// no others.
///
///     cache_heads_checks::as_defined(device);
#pragma once

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/cache_heads/reference.hpp>
#include <halftone/number/bfloat16.hpp>

#include "support/guarded.hpp"
#include "support/random.hpp"

namespace cache_heads_checks {

namespace ht = halftone;
using ht::extent;
using support::guarded;

template <class T, class Device>
bool is_as_defined(Device& device, extent first_column, extent heads, extent slots, extent head_size,
                   const std::vector<std::int32_t>& at) {
    support::random data(1);
    const auto tokens = static_cast<extent>(at.size()), width = first_column + heads * head_size;
    const guarded<T> rows(data.normals<T>(tokens * width)), got(heads * slots * head_size), want(heads * slots * head_size);
    const guarded<std::int32_t> ids(at);
    const ht::shape<3> s{heads, slots, head_size};
    const ht::kernel::cache_heads_arguments<T> a{rows.const_view(ht::shape<2>{tokens, width}), first_column, ids.const_view(),
                                                 got.view(s)};
    ht::kernel::cache_heads<Device>::run(device, a);
    ht::reference::cache_heads(ht::kernel::cache_heads_arguments<T>{a.rows, first_column, a.slots, want.view(s)});
    return got.same_bits(want) && got.intact();
}

template <class Device>
void as_defined(Device& device) {
    CHECK(is_as_defined<float>(device, 3, 2, 5, 4, {4, 0, 2}));
    CHECK(is_as_defined<ht::bfloat16>(device, 8, 6, 40, 7, {9, 8, 30, 39, 0}));
    CHECK(is_as_defined<float>(device, 0, 1, 1, 1, {0}));
    CHECK(is_as_defined<ht::bfloat16>(device, 5, 2, 3, 4, {}));
    std::vector<std::int32_t> many;
    for (int i = 0; i < 300; ++i) many.push_back(i * 7 % 300);
    CHECK(is_as_defined<ht::bfloat16>(device, 64, 4, 300, 16, many));
    const guarded<float> rows(12), cache(8);
    const guarded<std::int32_t> ids(std::vector<std::int32_t>{0, 1});
    CHECK_THROWS_WITH_AS(ht::kernel::cache_heads<Device>::run(
                             device, ht::kernel::cache_heads_arguments<float>{rows.const_view(ht::shape<2>{2, 6}), 3,
                                                                              ids.const_view(), cache.view(ht::shape<3>{2, 2, 2})}),
                         "cache_heads: rows is (2, 6); expected (2, 7)", ht::shape_error);
}

/// Positions outside the cache: whether only the valid position is written.
template <class Device>
bool stays_inside(Device& device, const std::vector<std::int32_t>& at) {
    const guarded<float> rows(std::vector<float>{1, 2, 3}), cache(std::vector<float>{0, 0});
    const guarded<std::int32_t> ids(at);
    ht::kernel::cache_heads<Device>::run(
        device, ht::kernel::cache_heads_arguments<float>{rows.const_view(ht::shape<2>{3, 1}), 0, ids.const_view(),
                                                         cache.view(ht::shape<3>{1, 2, 1})});
    return cache.intact() && cache[0] == 0 && cache[1] == 2;
}

}  // namespace cache_heads_checks
