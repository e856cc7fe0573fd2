// SPDX-License-Identifier: MIT
/// \file
/// Formats in which a tensor's numbers are few bits each, and every block of them has a scale: the concept of such a format,
/// and q8_0, that of ggml. nf4.hpp has the other one.
///
///     std::vector<std::byte> coded(ht::q8_0::bytes(count));
///     ht::q8_0::encode(values, count, coded.data());
///     ht::q8_0::decode(coded.data(), count, 64, 32, to);            // elements 64 to 95
///
/// A format has its name; `block`, the elements of a scale, of which a tensor has a multiple; and the three functions of the
/// concept. `bytes(count)` is the size of a tensor of `count` elements. `encode` writes a whole tensor. `decode` gives elements
/// [first, first + count) of a tensor of `total` as floats: it is the definition of what the codes mean.
///
/// Numeric contract of q8_0: blocks of 34 bytes stand one behind another, each a float16 d and 32 int8 q; an element is d q,
/// which is exact in float. Encoding is llama.cpp's (quantize_row_q8_0_ref), in float: D is the largest magnitude of the block
/// divided by 127, d is D rounded to float16, and q is x (1 / D) rounded to the nearest integer, ties away from 0. Where 1 / D
/// is infinite or D is 0, all q are 0. Numbers must be finite and less than 127 times 65520 in magnitude: others give a block
/// whose numbers are unspecified.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <halftone/number/classify.hpp>
#include <halftone/number/float16.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Numbers of few bits in blocks with a scale each.
template <class F>
concept block_format = requires(const float* values, std::size_t n, std::byte* to, const std::byte* from,
                                float* floats) {
    { F::name } -> std::convertible_to<const char*>;
    { F::block } -> std::convertible_to<std::size_t>;
    { F::largest } -> std::convertible_to<float>;
    { F::bytes(n) } -> std::same_as<std::size_t>;
    F::encode(values, n, to);
    F::decode(from, n, n, n, floats);
};

/// Eight bits: a float16 and 32 integers from -127 to 127, as ggml's Q8_0 has them.
struct q8_0 {
    static constexpr const char* name = "q8_0";
    static constexpr std::size_t block = 32;
    static constexpr float largest = 127 * 65504.0f;  ///< the largest magnitude that it holds
    static constexpr std::size_t block_bytes = 2 + block;

    /// The bytes of a tensor of that many elements.
    static constexpr std::size_t bytes(std::size_t count) { return count / block * block_bytes; }

    /// Writes `count` elements, a multiple of `block`.
    static void encode(const float* values, std::size_t count, std::byte* to) {
        for (std::size_t i = 0; i < count; i += block, to += block_bytes) encode_block(values + i, to);
    }
    /// Elements [first, first + count) of a tensor.
    static void decode(const std::byte* from, std::size_t total, std::size_t first, std::size_t count, float* to) {
        static_cast<void>(total);
        for (std::size_t i = first; i < first + count; ++i, ++to) {
            const std::byte* const of = from + i / block * block_bytes;
            *to = scale_of(of) * static_cast<float>(static_cast<std::int8_t>(of[2 + i % block]));
        }
    }

    /// The d of a block.
    static float scale_of(const std::byte* of) {
        float16 d;
        std::memcpy(&d, of, sizeof d);
        return static_cast<float>(d);
    }
    /// Writes one block.
    static void encode_block(const float* values, std::byte* to) {
        float largest = 0;
        for (std::size_t i = 0; i < block; ++i) {
            const float magnitude = std::fabs(values[i]);
            if (largest < magnitude) largest = magnitude;
        }
        const float exact = largest / 127, one_over = exact == 0 ? 0 : 1 / exact,
                    inverse = is_finite(one_over) ? one_over : 0;
        const float16 d(exact);
        std::memcpy(to, &d, sizeof d);
        for (std::size_t i = 0; i < block; ++i)
            to[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(std::round(values[i] * inverse)));
    }
};

static_assert(block_format<q8_0>);

}  // namespace HALFTONE_ABI
}  // namespace halftone
