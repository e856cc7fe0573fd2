// SPDX-License-Identifier: MIT
/// \file
/// The contents of a store as bytes, from the memory of any device.
///
///     CHECK(support::bytes_of(a.parameters()) == support::bytes_of(b.parameters()));
#pragma once

#include <cstddef>
#include <vector>

#include <halftone/memory/store.hpp>

namespace support {

/// Masters and copies of all groups.
inline std::vector<std::byte> bytes_of(const halftone::store& s) {
    std::vector<std::byte> all;
    for (const halftone::store::group& g : s.groups()) {
        for (const halftone::buffer* b : {&g.master, &g.copy}) {
            all.resize(all.size() + b->bytes());
            s.memory().read(all.data() + all.size() - b->bytes(), b->data(), b->bytes());
        }
    }
    return all;
}

}  // namespace support
