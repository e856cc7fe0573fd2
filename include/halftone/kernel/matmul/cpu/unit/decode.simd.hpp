// SPDX-License-Identifier: MIT
/// \file
/// Decoding a part of some rows of codes to floats or bfloat16: the numbers of the format's `decode`, rounded once.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstddef>

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/matmul/cpu/unit/decode_blocks.hpp>
#include <halftone/number/nf4.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// Elements [first, first + count) of a tensor of `total`, one by one.
template <class Format, class T>
void decode_elements(const std::byte* data, std::size_t total, std::size_t first, std::size_t count, T* to) {
    for (std::size_t i = 0; i < count; ++i) {
        float number = 0;
        Format::decode(data, total, first + i, 1, &number);
        to[i] = T(number);
    }
}

/// Whole 32 elements from a multiple of 32 on.
template <class T>
void decode_groups(const nf4&, const std::byte* data, std::size_t total, std::size_t first, std::size_t count, T* to) {
    const std::byte* const codes = data + nf4::codes_position(total);
    for (std::size_t i = first, end = first + count; i < end;) {
        const nf4_block<T> block(nf4::scale_of(data, total, i / nf4::block));
        for (bool is_second = i % nf4::block != 0; i < end; is_second = true, i += 32, to += 32) {
            if (is_second && i % nf4::block == 0) break;
            __builtin_prefetch(codes + i / 2 + 256);
            block.decode(codes + i / 2, to);
        }
    }
}
template <class T>
void decode_groups(const q8_0&, const std::byte* data, std::size_t, std::size_t first, std::size_t count, T* to) {
    const std::byte* from = data + q8_0::bytes(first);
    for (std::size_t i = 0; i < count; i += q8_0::block, from += q8_0::block_bytes, to += q8_0::block) {
        __builtin_prefetch(from + 544);
        decode_q8_0(from + 2, q8_0::scale_of(from), to);
    }
}

/// to (rows, count), to_stride elements from row to row, = elements from (row, first) on.
template <class Format, class T>
void decode_rows(const halftone::detail::coded_source& from, extent row, extent rows, extent first, extent count,
                 void* given, extent to_stride) {
    const auto total = static_cast<std::size_t>(from.rows * from.width);
    const extent before = count < 32 - first % 32 ? count : (32 - first % 32) % 32, whole = (count - before) / 32 * 32;
    for (extent r = 0; r < rows; ++r) {
        auto* const to = static_cast<T*>(given) + r * to_stride;
        const auto begin = static_cast<std::size_t>((row + r) * from.width + first);
        const auto part = [&](extent i, extent n) {
            decode_elements<Format>(from.data, total, begin + static_cast<std::size_t>(i), static_cast<std::size_t>(n),
                                    to + i);
        };
        if (before > 0) part(0, before);
        if (whole > 0)
            decode_groups(Format{}, from.data, total, begin + static_cast<std::size_t>(before),
                          static_cast<std::size_t>(whole), to + before);
        if (before + whole < count) part(before + whole, count - before - whole);
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
