// SPDX-License-Identifier: MIT
/// \file
/// Tests of positions in packed documents, for every device.
///
///     packed_positions_checks::as_defined(device);
#pragma once

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/packed_positions/reference.hpp>

#include "support/guarded.hpp"

namespace packed_positions_checks {

namespace ht = halftone;
using support::guarded;

/// Compares the positions with the definition's.
template <class Device>
bool is_as_defined(Device& device, const std::vector<std::int32_t>& all, ht::extent tokens) {
    const guarded<std::int32_t> offsets(all), got(tokens, 1), want(tokens, 1);
    ht::packed_positions(device, offsets.const_view(), got.view());
    ht::reference::packed_positions(offsets.const_view(), want.view());
    return got.same_bits(want) && got.intact();
}

template <class Device>
void as_defined(Device& device) {
    CHECK(is_as_defined(device, {0, 3, 5}, 5));
    CHECK(is_as_defined(device, {0, 0, 3, 3, 3, 5, 5}, 5));  // documents without tokens
    CHECK(is_as_defined(device, {0}, 0));
    CHECK(is_as_defined(device, {0, 0}, 0));
    std::vector<std::int32_t> many{0};
    for (int d = 0; d < 90; ++d) many.push_back(many.back() + d * 7 % 11);
    CHECK(is_as_defined(device, many, many.back()));
    // Tokens outside of all documents.
    CHECK(is_as_defined(device, {0, 3}, 300));
    CHECK(is_as_defined(device, {2, 3}, 4));
    CHECK(is_as_defined(device, {0}, 4));
    const guarded<std::int32_t> none(0), got(3);
    CHECK_THROWS_AS(ht::kernel::packed_positions<Device>::run(device, none.const_view(), got.view()), ht::shape_error);
    // Invalid offsets: no memory outside is accessed.
    for (const std::vector<std::int32_t>& wild :
         {std::vector<std::int32_t>{-5, 9, 2}, {7, 1 << 30, -(1 << 30)}, {0, 900}}) {
        const guarded<std::int32_t> offsets(wild), to(4);
        ht::kernel::packed_positions<Device>::run(device, offsets.const_view(), to.view());
        CHECK(to.intact());
    }
}

}  // namespace packed_positions_checks
