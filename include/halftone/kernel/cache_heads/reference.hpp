// SPDX-License-Identifier: MIT
/// \file
/// The definition of copying keys or values into a key-value cache.
///
///     cache[h][slots[t]] = rows[t][first_column + h head_size ...]
///
///     reference::cache_heads(arguments);
#pragma once

#include <halftone/kernel/cache_heads/cache_heads.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// Copies each head's vector of each row to the row's slot.
template <class T>
void cache_heads(const kernel::cache_heads_arguments<T>& a) {
    const extent heads = a.cache.extent_of(0), head_size = a.cache.extent_of(2);
    for (extent t = 0; t < a.rows.extent_of(0); ++t) {
        for (extent h = 0; h < heads; ++h) {
            for (extent d = 0; d < head_size; ++d)
                a.cache(h, a.slots(t), d) = a.rows(t, a.first_column + h * head_size + d);
        }
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
