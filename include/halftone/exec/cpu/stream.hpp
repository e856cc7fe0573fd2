// SPDX-License-Identifier: MIT
/// \file
/// Writing past the caches, and asking for memory before it is read: for passes over more than the caches hold.
///
///     stream(to, rounded, sizeof rounded);           // nobody reads `to` before the caches have seen much else
///     end_non_temporal();                                 // before another thread may read it
///
/// A store that misses the caches reads its line first; a streamed one does not, which saves a third of the bytes where
/// memory is only written.
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

/// As much as this, written in one pass, goes past the caches. Read again soon it might lie in the third-level one, but a
/// store that misses reads its line first: as many bytes of memory as the next reader would save.
inline constexpr std::size_t non_temporal_threshold = std::size_t{8} << 20;

/// Whether `stream` may write there.
inline bool is_streamable(const void* to) { return reinterpret_cast<std::uintptr_t>(to) % 16 == 0; }

/// Copies `bytes`, a multiple of 16, to a multiple of 16.
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

/// What was streamed is seen by whoever is told afterwards.
HALFTONE_INLINE void end_non_temporal() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/// Asks for `bytes` from p on, which may lie anywhere.
HALFTONE_INLINE void prefetch(const void* p, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const std::byte*>(p) + i);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
