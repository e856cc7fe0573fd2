// SPDX-License-Identifier: MIT
/// \file
/// Copies the keys and values of new tokens to their slots in a key-value cache.
///
///     kernel::cache_heads<cpu>::run(device, {qkv_rows, first_column, slots, cache});
///
/// Numeric contract: bytes are copied.
#pragma once

#include <cstdint>

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The operands of the copy. Each row has the vectors of all heads, contiguous from column `first_column` on; that of
/// head h in row t is copied to cache[h][slots[t]]. No two rows may have the same slot.
template <class T>
struct cache_heads_arguments {
    const_view<T, 2> rows;  ///< (tokens, width), contiguous
    extent first_column;
    const_view<std::int32_t, 1> slots;  ///< (tokens), each from 0 to the cache's slots - 1
    view<T, 3> cache;                    ///< (heads, slots, head_size), contiguous
};

/// run(device, arguments). Throws shape_error, and argument_error for a slot outside the cache if the host can read
/// it; otherwise such a row is not copied.
template <class Device>
struct cache_heads;

/// Throws shape_error if the arguments do not fit together.
template <class T>
void check_cache_heads(const cache_heads_arguments<T>& a) {
    const extent tokens = a.rows.extent_of(0), heads = a.cache.extent_of(0), head_size = a.cache.extent_of(2);
    expect("cache_heads", "rows", a.rows, {tokens, a.first_column + heads * head_size});
    expect("cache_heads", "slots", a.slots, {tokens});
    expect("cache_heads", "cache", a.cache, a.cache.shape());
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
