// SPDX-License-Identifier: MIT
/// \file
/// Keys and values of new tokens go to their places in a key-value cache.
///
///     kernel::cache_heads<cpu>::run(device, {qkv_rows, first_column, places, cache});
///
/// Numeric contract: bytes are copied.
#pragma once

#include <cstdint>

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// What is copied: columns `first_column` and those behind it of each row are the vectors of heads, side by side; the vector
/// of head h in row t goes to cache[h][places[t]]. Several rows never have one place.
template <class T>
struct cache_heads_arguments {
    const_view<T, 2> rows;  ///< (tokens, width), contiguous
    extent first_column;
    const_view<std::int32_t, 1> places;  ///< (tokens), each 0 to the cache's places - 1
    view<T, 3> cache;                    ///< (heads, places, head_size), contiguous
};

/// run(device, arguments); throws shape_error, and argument_error for a place outside the cache where the host can read it;
/// elsewhere such a row is not copied.
template <class Device>
struct cache_heads;

/// Throws shape_error if the arguments do not fit together.
template <class T>
void check_cache_heads(const cache_heads_arguments<T>& a) {
    const extent tokens = a.rows.extent_of(0), heads = a.cache.extent_of(0), head_size = a.cache.extent_of(2);
    expect("cache_heads", "rows", a.rows, {tokens, a.first_column + heads * head_size});
    expect("cache_heads", "places", a.places, {tokens});
    expect("cache_heads", "cache", a.cache, a.cache.shape());
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
