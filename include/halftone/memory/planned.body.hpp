// SPDX-License-Identifier: MIT
/// \file
/// The bodies of the functions in planned.hpp that are no templates.
#pragma once

#include <halftone/memory/planned.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

HALFTONE_OUT_OF_LINE void planned_memory::write(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0 || bytes > most_remembered) return;
    clear(to, bytes);
    const auto* const first = static_cast<const std::byte*>(from);
    values_.push_back({to, {first, first + bytes}});
}

HALFTONE_OUT_OF_LINE void planned_memory::read(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    const auto found = find(from);
    if (found != values_.end() && found->bytes.size() == bytes) {
        std::memcpy(to, found->bytes.data(), bytes);
    } else {
        std::memset(to, 0, bytes);
    }
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
