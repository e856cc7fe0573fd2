// SPDX-License-Identifier: MIT
/// \file
/// Numbers as the blocks of ggml's types Q8_0 and Q4_0, by llama.cpp's definitions (quantize_row_q8_0_ref, quantize_row_q4_0_ref).
///
///     detail::quantise(ht::ggml_type::q8_0, values, 64, blocks);        // two blocks; dequantise (types.hpp) is the way back
///
/// number/block_format.hpp has Q8_0. Q4_0: d is the number of the largest magnitude, the first of several, divided by -8, the elements are
/// x (1 / d) + 8.5 rounded towards 0, 15 at most. All is computed in float with the d of before it is rounded to float16.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <halftone/io/gguf/types.hpp>
#include <halftone/number/block_format.hpp>
#include <halftone/number/classify.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

inline void put_ggml_half(float d, std::byte* to) {
    const float16 rounded(d);
    std::memcpy(to, &rounded, sizeof rounded);
}
/// 1 / d; 0 for 0 and for a d so small that 1 / d is infinite, which is 0 as a float16.
inline float ggml_inverse(float d) {
    const float inverse = d == 0 ? 0 : 1 / d;
    return is_finite(inverse) ? inverse : 0;
}

/// A block of Q4_0 of 32 numbers.
inline void quantise_q4_0(const float* from, std::byte* block) {
    float largest = 0;
    for (std::size_t i = 0; i < 32; ++i) {
        if (std::abs(largest) < std::abs(from[i])) largest = from[i];
    }
    const float d = largest / -8, inverse = ggml_inverse(d);
    put_ggml_half(d, block);
    // The sum is that of float: a double has room for it, and keeps a compiler from rounding product and sum together.
    const auto code = [inverse](float x) {
        const auto shifted = static_cast<float>(static_cast<double>(x * inverse) + 8.5);
        return static_cast<unsigned>(std::min(15, static_cast<int>(shifted)));
    };
    for (std::size_t i = 0; i < 16; ++i) block[2 + i] = static_cast<std::byte>(code(from[i]) | code(from[16 + i]) << 4);
}

/// Whether numbers are written as this type: F32, F16, BF16, Q8_0 or Q4_0.
constexpr bool is_written(ggml_type t) { return is_converted(t) && t != ggml_type::mxfp4; }
/// Whether a block with this number has a finite d.
inline bool is_quantised(ggml_type type, float x) {
    constexpr float beyond_half = 65520;  // what is rounded to infinity in float16
    return is_finite(x) && std::abs(x) / (type == ggml_type::q8_0 ? 127.0f : 8.0f) < beyond_half;
}

/// Whole blocks of Q8_0 or Q4_0 of `count` numbers.
inline void quantise(ggml_type type, const float* from, std::size_t count, std::byte* blocks) {
    const ggml_type_entry& e = entry_of(type);
    void (*const of_block)(const float*, std::byte*) = type == ggml_type::q8_0 ? &q8_0::encode_block : &quantise_q4_0;
    const auto each = static_cast<std::size_t>(e.elements);
    for (std::size_t i = 0; i < count; i += each, from += each, blocks += e.bytes) of_block(from, blocks);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
