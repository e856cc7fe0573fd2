// SPDX-License-Identifier: MIT
/// \file
/// Memory as a GPU kernel sees it: spans of global and of shared memory, vectors of neighbours, and tiles whose rows
/// are swizzled so that a warp reads a column of them without bank conflicts.
///
///     const auto row = simt::span_of(x, i * width, width);                 // of global memory
///     const auto fours = simt::as_vectors<4>(row);                         // the same, 4 elements at a time
///     const simt::shared_span<float> sums{.offset = 0, .count = 32};       // bytes 0 to 127 of the block's shared memory
///
/// Kernels touch memory through spans alone. On a GPU a span is a pointer whose count nobody reads; where kernels run
/// on a host for tests, it is what lets every access be checked.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <halftone/tensor/view.hpp>

/// Stands before every kernel body that runs on a GPU and, for tests, on the host: nvcc then does not complain of what
/// the other side cannot call.
#if defined(__CUDACC__)
#define HALFTONE_KERNEL _Pragma("nv_exec_check_disable")
#else
#define HALFTONE_KERNEL
#endif

/// Stands before a loop of a kernel whose count is a constant. Not under nvcc's host pass, where g++ knows no such
/// pragma.
#if defined(__CUDA_ARCH__)
#define HALFTONE_UNROLL _Pragma("unroll")
#else
#define HALFTONE_UNROLL
#endif

namespace halftone {
inline namespace HALFTONE_ABI {
namespace simt {

using word = std::uint32_t;

template <int N>
using constant = std::integral_constant<int, N>;

/// N values side by side: a vector load, a fragment of a matrix, the sums of one lane. (std::array's operator[] is no
/// device function.)
template <class T, int N>
struct alignas(sizeof(T) * N <= 16 ? sizeof(T) * N : alignof(T)) vec {
    T value[N];
    HALFTONE_HD constexpr T& operator[](int i) { return value[i]; }
    HALFTONE_HD constexpr const T& operator[](int i) const { return value[i]; }
};

/// 16 bytes: the widest load, what an asynchronous copy moves, one row of an ldmatrix.
template <class T>
using chunk = vec<T, 16 / static_cast<int>(sizeof(T))>;

/// Global memory: `count` elements from `data` on.
template <class T>
struct global_span {
    T* data = nullptr;
    extent count = 0;

    HALFTONE_HD constexpr global_span from(extent first) const { return {data + first, count - first}; }
    HALFTONE_HD constexpr global_span part(extent first, extent n) const { return {data + first, n}; }
    HALFTONE_HD constexpr bool is_there() const { return data != nullptr; }
};

/// All elements of a contiguous view.
template <class T, int Rank>
constexpr global_span<T> span_of(const view<T, Rank>& v) {
    return {v.data(), v.size()};
}
/// From the first to the last element of a view with strides.
template <class T, int Rank>
constexpr global_span<T> bounding_span_of(const view<T, Rank>& v) {
    return {v.data(), v.bounding_size()};
}

/// The same memory, N elements at a time. It must begin on a multiple of their bytes.
template <int N, class T>
HALFTONE_HD constexpr auto as_vectors(const global_span<T>& s) {
    using plain = std::remove_const_t<T>;
    using vector = std::conditional_t<std::is_const_v<T>, const vec<plain, N>, vec<plain, N>>;
    return global_span<vector>{reinterpret_cast<vector*>(s.data), s.count / N};
}

/// True where vectors of `bytes` can be read from the pointer.
inline bool is_aligned(const void* p, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; }

/// Shared memory: `offset` in bytes from the start of the block's, 32 bits as PTX and descriptors have it.
template <class T>
struct shared_span {
    word offset;
    word count;

    HALFTONE_HD constexpr shared_span part(word first, word n) const {
        return {offset + first * static_cast<word>(sizeof(T)), n};
    }
    HALFTONE_HD constexpr word end() const { return offset + count * static_cast<word>(sizeof(T)); }
};

/// The swizzle modes of TMA and wgmma; the value is the mask of 16-byte chunk numbers that the row number is xor'ed
/// into.
enum class swizzle : word { none = 0, b32 = 1, b64 = 3, b128 = 7 };

HALFTONE_HD constexpr swizzle swizzle_for(word row_bytes) {
    return static_cast<swizzle>((row_bytes < 128 ? row_bytes : 128) / 16 - 1);
}
HALFTONE_HD constexpr word swizzled(word offset, swizzle mode) {
    return offset ^ ((offset >> 7 & static_cast<word>(mode)) << 4);
}

/// A matrix in shared memory as Hopper's hardware also reads and writes it: panels at most 128 bytes wide, rows under
/// each other, chunks swizzled so that any eight rows of one column of chunks lie in eight different groups of banks.
template <class T, int Rows, int Columns, swizzle Mode = swizzle_for(Columns * sizeof(T))>
struct shared_tile {
    static constexpr word bytes = Rows * Columns * sizeof(T);
    static constexpr word row_bytes = Columns * sizeof(T) < 128 ? Columns * sizeof(T) : 128;
    static_assert(row_bytes >= 32 && (row_bytes & (row_bytes - 1)) == 0 && Columns * sizeof(T) % row_bytes == 0);
    static_assert(Rows * row_bytes % 1024 == 0, "panels begin on multiples of 1024 bytes, the swizzle's period");

    word base;

    /// The chunk that begins at (row, column).
    HALFTONE_HD constexpr shared_span<chunk<T>> at(word row, word column) const {
        const word byte = column * static_cast<word>(sizeof(T)), panel = byte / row_bytes;
        return {base + swizzled((panel * Rows + row) * row_bytes + byte % row_bytes, Mode), 1};
    }
};

}  // namespace simt
}  // namespace HALFTONE_ABI
}  // namespace halftone
