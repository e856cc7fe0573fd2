// SPDX-License-Identifier: MIT
/// \file
/// Non-temporal stores and prefetches, for passes over more memory than the caches hold.
///
///     stream(to, rounded, sizeof rounded);           // if `to` is not read again soon
///     end_non_temporal();                                 // before another thread may read it
///
/// An ordinary store that misses the caches first reads its line from memory; a non-temporal one does not, which saves
/// a third of the traffic of a pass that reads one array and writes another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <halftone/config.hpp>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// A pass that writes at least this much uses non-temporal stores. The L3 cache might hold part of the result for a reader
/// soon after, but ordinary stores cost a read of each line first, as much as that reader would save.
inline constexpr std::size_t non_temporal_threshold = std::size_t{8} << 20;

/// Whether `stream` may write to this address.
inline bool is_streamable(const void* to) { return reinterpret_cast<std::uintptr_t>(to) % 16 == 0; }

/// Copies `bytes`, a multiple of 16, to an address that is a multiple of 16, by non-temporal stores.
HALFTONE_INLINE void stream(void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
    for (std::size_t i = 0; i < bytes; i += 16) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(static_cast<std::byte*>(to) + i),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const std::byte*>(from) + i)));
    }
#else
    std::memcpy(to, from, bytes);
#endif
}

/// A store fence: makes the non-temporal stores before it visible to threads that are notified afterwards.
HALFTONE_INLINE void end_non_temporal() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/// Prefetches `bytes` from p on, at any alignment.
HALFTONE_INLINE void prefetch(const void* p, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const std::byte*>(p) + i);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
