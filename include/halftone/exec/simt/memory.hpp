// SPDX-License-Identifier: MIT
/// \file
/// Memory as GPU kernels access it: spans of global and of shared memory, vector accesses, and tiles whose rows are
/// swizzled so that a warp reads a column of chunks without bank conflicts.
///
///     const auto row = simt::span_of(x, i * width, width);                 // in global memory
///     const auto fours = simt::as_vectors<4>(row);                         // the same, accessed 4 elements at a time
///     const simt::shared_span<float> sums{.offset = 0, .count = 32};       // bytes 0 to 127 of the block's shared memory
///
/// Kernels access memory through spans only. On a GPU a span is a pointer, and its count is never read; on the emulated
/// machine of the tests the count serves to check every access.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <halftone/tensor/view.hpp>

/// Precedes every kernel body: the body is compiled for the GPU and, in tests, for the host. Silences nvcc's warnings
/// about calls that only one side can make.
#if defined(__CUDACC__)
#define HALFTONE_KERNEL _Pragma("nv_exec_check_disable")
#else
#define HALFTONE_KERNEL
#endif

/// Precedes a kernel's loop with a constant trip count: unrolls it. Empty in nvcc's host pass, since g++ does not know
/// the pragma.
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

/// N contiguous values: of a vector load, a fragment of a matrix, or one lane's sums. (std::array's operator[] is not a
/// device function.)
template <class T, int N>
struct alignas(sizeof(T) * N <= 16 ? sizeof(T) * N : alignof(T)) vec {
    T value[N];
    HALFTONE_HD constexpr T& operator[](int i) { return value[i]; }
    HALFTONE_HD constexpr const T& operator[](int i) const { return value[i]; }
};

/// 16 bytes: the widest load, the unit of asynchronous copies, one row of an ldmatrix.
template <class T>
using chunk = vec<T, 16 / static_cast<int>(sizeof(T))>;

/// `count` elements of global memory, from `data` on.
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
/// The bounding span of a view with strides.
template <class T, int Rank>
constexpr global_span<T> bounding_span_of(const view<T, Rank>& v) {
    return {v.data(), v.bounding_size()};
}

/// The span's memory, accessed N elements at a time. It must be aligned to N elements.
template <int N, class T>
HALFTONE_HD constexpr auto as_vectors(const global_span<T>& s) {
    using plain = std::remove_const_t<T>;
    using vector = std::conditional_t<std::is_const_v<T>, const vec<plain, N>, vec<plain, N>>;
    return global_span<vector>{reinterpret_cast<vector*>(s.data), s.count / N};
}

/// Whether vectors of `bytes` can be loaded at the pointer.
inline bool is_aligned(const void* p, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; }

/// `count` elements of shared memory; `offset` is in bytes from the start of the block's shared memory, 32 bits as in
/// PTX.
template <class T>
struct shared_span {
    word offset;
    word count;

    HALFTONE_HD constexpr shared_span part(word first, word n) const {
        return {offset + first * static_cast<word>(sizeof(T)), n};
    }
    HALFTONE_HD constexpr word end() const { return offset + count * static_cast<word>(sizeof(T)); }
};

/// The swizzle modes of TMA and wgmma. The value is a mask: the row number, masked, is xor'ed into the number of a
/// 16-byte chunk.
enum class swizzle : word { none = 0, b32 = 1, b64 = 3, b128 = 7 };

HALFTONE_HD constexpr swizzle swizzle_for(word row_bytes) {
    return static_cast<swizzle>((row_bytes < 128 ? row_bytes : 128) / 16 - 1);
}
HALFTONE_HD constexpr word swizzled(word offset, swizzle mode) {
    return offset ^ ((offset >> 7 & static_cast<word>(mode)) << 4);
}

/// A matrix in shared memory in the layout that Hopper's TMA and wgmma use: panels at most 128 bytes wide, row below
/// row, with chunks swizzled so that any eight consecutive rows of one column of chunks are in eight different groups
/// of banks.
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
