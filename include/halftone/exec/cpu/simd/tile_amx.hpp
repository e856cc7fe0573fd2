// SPDX-License-Identifier: MIT
/// \file
/// AMX tile registers. The intrinsics take literal register numbers: 0 to 3 hold the sums, 4 and 5 rows of a, 6 and 7
/// columns of b.
#pragma once

#include <cstddef>
#include <cstdint>

#include <halftone/exec/cpu/body_names.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/tensor/shape.hpp>

#if HALFTONE_AMX
#include <immintrin.h>

#include <halftone/exec/cpu/set/amx.hpp>
namespace halftone {
inline namespace HALFTONE_ABI {
namespace amx {

/// Configures eight tiles of 16 rows of 64 bytes for this thread. To be called before the first product of a task.
inline void enter_tiles() {
    struct {
        std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
        std::uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } configuration;
    static_assert(sizeof configuration == 64);
    // g++ 12's intrinsic declares only 8 of the 64 bytes as its input: without this the compiler removes the other
    // stores.
    __asm__ volatile("" : : "r"(&configuration) : "memory");
    _tile_loadconfig(&configuration);
}
/// Releases the tiles, so that the operating system need not save them at a context switch.
inline void leave_tiles() { _tile_release(); }

/// Loads a tile from rows that are `bytes` apart (TILELOADD, or TILELOADDT1, a non-temporal hint), and stores one to
/// such rows. They replace g++'s intrinsics, whose distance is a `long`, which has 32 bits on Windows.
template <int Tile>
HALFTONE_INLINE void load_tile(const void* from, std::size_t bytes) {
#if defined(__clang__)
    _tile_loadd(Tile, from, bytes);
#else
    __asm__ volatile("{tileloadd\t(%0,%1,1), %%tmm%c2|tileloadd\ttmm%c2, [%0+%1*1]}"
                     :
                     : "r"(from), "r"(bytes), "i"(Tile));
#endif
}
template <int Tile>
HALFTONE_INLINE void stream_tile(const void* from, std::size_t bytes) {
#if defined(__clang__)
    _tile_stream_loadd(Tile, from, bytes);
#else
    __asm__ volatile("{tileloaddt1\t(%0,%1,1), %%tmm%c2|tileloaddt1\ttmm%c2, [%0+%1*1]}"
                     :
                     : "r"(from), "r"(bytes), "i"(Tile));
#endif
}
template <int Tile>
HALFTONE_INLINE void store_tile(void* to, std::size_t bytes) {
#if defined(__clang__)
    _tile_stored(Tile, to, bytes);
#else
    __asm__ volatile("{tilestored\t%%tmm%c2, (%0,%1,1)|tilestored\t[%0+%1*1], tmm%c2}"
                     :
                     : "r"(to), "r"(bytes), "i"(Tile)
                     : "memory");
#endif
}

/// A compiler barrier: stores before it are complete before later tile loads, which do not declare what they read.
HALFTONE_INLINE void complete_stores() { __asm__ volatile("" : : : "memory"); }

/// Which operands of a product are read again soon, and should stay in the L1 cache.
enum class tile_reuse { both, columns, neither };

/// The sums of a 32 x 32 block of the product.
struct tile_block {
    HALFTONE_INLINE void zero() {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    HALFTONE_INLINE void load(const float* c, extent stride) {
        const auto bytes = static_cast<std::size_t>(stride) * sizeof(float);
        complete_stores();
        load_tile<0>(c, bytes);
        load_tile<1>(c + 16, bytes);
        load_tile<2>(c + 16 * stride, bytes);
        load_tile<3>(c + 16 * stride + 16, bytes);
    }
    HALFTONE_INLINE void store(float* c, extent stride) {
        const auto bytes = static_cast<std::size_t>(stride) * sizeof(float);
        store_tile<0>(c, bytes);
        store_tile<1>(c + 16, bytes);
        store_tile<2>(c + 16 * stride, bytes);
        store_tile<3>(c + 16 * stride + 16, bytes);
    }
    /// Adds a (32 x 32, leading dimension `stride`) times b (16 pairs of k x 32 columns x 2). Operands that are not
    /// reused are loaded with the non-temporal hint, so that they do not displace reused ones from the L1 cache.
    template <tile_reuse Reuse>
    HALFTONE_INLINE void multiply(const bfloat16* a, extent stride, const bfloat16* b) {
        const auto bytes = static_cast<std::size_t>(stride) * sizeof(bfloat16);
        complete_stores();
        if constexpr (Reuse == tile_reuse::both) {
            load_tile<4>(a, bytes);
        } else {
            stream_tile<4>(a, bytes);
        }
        if constexpr (Reuse != tile_reuse::neither) {
            load_tile<6>(b, 128);
        } else {
            stream_tile<6>(b, 128);
        }
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (Reuse != tile_reuse::neither) {
            load_tile<7>(b + 32, 128);
        } else {
            stream_tile<7>(b + 32, 128);
        }
        _tile_dpbf16ps(1, 4, 7);
        if constexpr (Reuse == tile_reuse::both) {
            load_tile<5>(a + 16 * stride, bytes);
        } else {
            stream_tile<5>(a + 16 * stride, bytes);
        }
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    /// Stores a tile to a buffer that is never read. A tile store takes about a thousand cycles if more than twice the
    /// L1 cache's size was read since the previous one, and almost none otherwise (timed between fences; what is stored
    /// and where made no difference). So long products store a tile of a to a dummy buffer from time to time.
    HALFTONE_INLINE void stay_ready_to_store() { store_tile<4>(unused, 64); }

    alignas(64) std::byte unused[1024];
    /// The product in three steps, so that one operand can be multiplied with several others.
    HALFTONE_INLINE void load_rows(const bfloat16* a, extent stride) {
        const auto bytes = static_cast<std::size_t>(stride) * sizeof(bfloat16);
        complete_stores();
        load_tile<4>(a, bytes);
        load_tile<5>(a + 16 * stride, bytes);
    }
    HALFTONE_INLINE void load_columns(const bfloat16* b) {
        complete_stores();
        load_tile<6>(b, 128);
        load_tile<7>(b + 32, 128);
    }
    HALFTONE_INLINE void multiply() {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
};

}  // namespace amx
}  // namespace HALFTONE_ABI
}  // namespace halftone
#include <halftone/exec/cpu/set/end.hpp>
#endif
