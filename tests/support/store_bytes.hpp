// SPDX-License-Identifier: MIT
/// \file
/// What a store holds, byte by byte, out of the memory of any device.
///
///     CHECK(support::bytes_of(a.parameters()) == support::bytes_of(b.parameters()));
#pragma once

#include <cstddef>
#include <vector>

#include <halftone/memory/store.hpp>

namespace support {

/// Masters and copies, group by group.
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
