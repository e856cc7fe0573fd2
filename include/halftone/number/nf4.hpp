// SPDX-License-Identifier: MIT
/// \file
/// nf4: four bits, the NormalFloat of Dettmers et al. 2023, "QLoRA: Efficient Finetuning of Quantized LLMs", with the scales of
/// its blocks in eight bits, as bitsandbytes stores them (quant_type "nf4", block size 64, compress_statistics).
///
///     std::vector<std::byte> coded(ht::nf4::bytes(count));           // 0.516 bytes an element
///     ht::nf4::encode(values, count, coded.data());
///     ht::nf4::decode(coded.data(), count, 0, count, values);
///
/// A tensor of `count` elements, in this order, so that all is aligned where the tensor is:
///
///     nested    an offset and a scale of every 256 blocks, floats; padded to 64 bytes
///     codes     count / 2 bytes; of two elements the first one has the upper four bits
///     absmax    count / 64 bytes: the code of each block's scale
///
/// Numeric contract, all in float and without fused multiply-adds: the scale of a block is the dynamic map's value
/// (dynamic_map.hpp) of its code times the nested scale, plus the offset; an element is one of sixteen values times that, each
/// operation rounded once. Encoding is that of the CPU library of bitsandbytes 0.50.2. The scale to be is the largest magnitude
/// of the block; an element's code is that of the value nearest to x (1 / scale), of two equally near that of the lesser one.
/// The offset is the mean of all scales, summed in double (bitsandbytes sums in float: its last bit may differ); a nested scale
/// is the largest magnitude of what 256 scales differ from it by. Such a difference, times 1 / nested, is rounded to one of
/// 65536 numbers from -1 to 1 in equal steps, and has the code whose value is nearest to that number: so none has the code of 0.
/// bitsandbytes computes its map in float, and its scales may differ from these by a unit in the last place of the map's value.
/// A NaN or an infinity makes all numbers of the tensor unspecified, for all share the offset: a caller looks for them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <halftone/number/block_format.hpp>
#include <halftone/number/dynamic_map.hpp>
#include <halftone/number/integer.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The values of four bits: quantiles of the normal distribution, divided by the largest.
inline constexpr float nf4_values[16] = {-1.0f,
                                         -0.6961928009986877f,
                                         -0.5250730514526367f,
                                         -0.39491748809814453f,
                                         -0.28444138169288635f,
                                         -0.18477343022823334f,
                                         -0.09105003625154495f,
                                         0.0f,
                                         0.07958029955625534f,
                                         0.16093020141124725f,
                                         0.24611230194568634f,
                                         0.33791524171829224f,
                                         0.44070982933044434f,
                                         0.5626170039176941f,
                                         0.7229568362236023f,
                                         1.0f};

/// The values of the dynamic map with a sign, by their codes.
struct dynamic_values {
    float of[kernel::dynamic_map::codes] = {};

    constexpr dynamic_values() {
        float magnitudes[kernel::dynamic_map::codes] = {};
        const int ranks = kernel::make_magnitudes(magnitudes, true), zero = ranks - 2;
        for (int rank = 0; rank < ranks; ++rank) of[zero + rank] = magnitudes[rank];
        for (int rank = 1; rank < ranks - 1; ++rank) of[zero - rank] = -magnitudes[rank];
    }
    /// The code of the value nearest to x, of two equally near that of the lesser one.
    std::uint8_t nearest(double x) const {
        int below = 0, above = kernel::dynamic_map::codes - 1;
        while (above - below > 1) {
            const int middle = (below + above) / 2;
            (static_cast<double>(of[middle]) < x ? below : above) = middle;
        }
        const bool takes_above = static_cast<double>(of[above]) - x < x - static_cast<double>(of[below]);
        return static_cast<std::uint8_t>(takes_above ? above : below);
    }
};
inline constexpr dynamic_values signed_dynamic_values{};

}  // namespace detail

/// Four bits: one of sixteen values, in blocks of 64 whose scales have eight bits.
struct nf4 {
    static constexpr const char* name = "nf4";
    static constexpr std::size_t block = 64;
    static constexpr float largest = number_traits<float>::max;  ///< the largest magnitude that it holds
    static constexpr std::size_t nested_block = 256;  ///< scales that share a nested one

    /// The bytes of a tensor of that many elements.
    static constexpr std::size_t bytes(std::size_t count) { return absmax_position(count) + count / block; }
    /// The number of nested scales of a tensor of that many elements.
    static constexpr std::size_t nested_count(std::size_t count) {
        return detail::ceil_div(count / block, nested_block);
    }

    // Where a tensor's parts begin, in bytes.

    /// Where the offset of all scales is, a float.
    static constexpr std::size_t offset_position() { return 0; }
    /// Where the nested scales begin, floats.
    static constexpr std::size_t nested_position() { return sizeof(float); }
    /// Where the codes of elements begin, two a byte.
    static constexpr std::size_t codes_position(std::size_t count) {
        return detail::round_up(nested_position() + nested_count(count) * sizeof(float), std::size_t{64});
    }
    /// Where the codes of scales begin, one a byte.
    static constexpr std::size_t absmax_position(std::size_t count) { return codes_position(count) + count / 2; }

    /// Writes `count` elements, a multiple of `block`.
    static void encode(const float* values, std::size_t count, std::byte* to) {
        const std::size_t blocks = count / block;
        double sum = 0;
        for (std::size_t b = 0; b < blocks; ++b) sum += static_cast<double>(largest_of(values + b * block));
        const float offset = blocks == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(blocks));
        std::memset(to, 0, codes_position(count));
        std::memcpy(to + offset_position(), &offset, sizeof offset);
        for (std::size_t b = 0; b < blocks; ++b)
            encode_block(values + b * block, largest_of(values + b * block),
                         to + codes_position(count) + b * block / 2);
        for (std::size_t n = 0; n < nested_count(count); ++n) {
            const std::size_t first = n * nested_block, left = blocks - first;
            const float nested = encode_scales(values + first * block, left < nested_block ? left : nested_block,
                                               offset, to + absmax_position(count) + first);
            std::memcpy(to + nested_position() + n * sizeof nested, &nested, sizeof nested);
        }
    }
    /// Elements [first, first + count) of a tensor of `total`.
    static void decode(const std::byte* from, std::size_t total, std::size_t first, std::size_t count, float* to) {
        const std::byte* const codes = from + codes_position(total);
        for (std::size_t i = first, end; i < first + count; i = end) {
            const float scale = scale_of(from, total, i / block);
            end = (i / block + 1) * block;
            if (end > first + count) end = first + count;
            for (std::size_t k = i; k < end; ++k) {
                const auto both = std::to_integer<unsigned>(codes[k / 2]);
                *to++ = detail::nf4_values[k % 2 == 0 ? both >> 4 : both & 15] * scale;
            }
        }
    }

    /// The scale of block number b of a tensor of `total` elements. The sum is that of float: a double has room for it, and
    /// keeps a compiler from rounding product and sum together.
    static float scale_of(const std::byte* from, std::size_t total, std::size_t b) {
        float offset, nested;
        std::memcpy(&offset, from + offset_position(), sizeof offset);
        std::memcpy(&nested, from + nested_position() + b / nested_block * sizeof nested, sizeof nested);
        const auto code = std::to_integer<std::size_t>(from[absmax_position(total) + b]);
        const float product = detail::signed_dynamic_values.of[code] * nested;
        return static_cast<float>(static_cast<double>(product) + static_cast<double>(offset));
    }

  private:
    static constexpr float least_divisor = 1e-38f;

    static float largest_of(const float* values) {
        float largest = 0;
        for (std::size_t i = 0; i < block; ++i) {
            const float magnitude = std::fabs(values[i]);
            if (largest < magnitude) largest = magnitude;
        }
        return largest;
    }
    /// The code of a quotient from -1 to 1: the number of boundaries, each in the middle of two values, that are less.
    static unsigned code_of(float quotient) {
        const auto beyond = [quotient](unsigned code) {
            return quotient > (detail::nf4_values[code] + detail::nf4_values[code + 1]) / 2;
        };
        unsigned code = 0;
        for (unsigned step = 8; step > 0; step /= 2) code += beyond(code + step - 1) ? step : 0;
        return code;
    }
    static void encode_block(const float* values, float largest, std::byte* to) {
        const float inverse = 1 / (largest < least_divisor ? least_divisor : largest);
        for (std::size_t i = 0; i < block; i += 2)
            to[i / 2] = static_cast<std::byte>(code_of(values[i] * inverse) << 4 | code_of(values[i + 1] * inverse));
    }
    /// The codes of `count` scales, and what they have to be multiplied by.
    static float encode_scales(const float* values, std::size_t count, float offset, std::byte* to) {
        float nested = 0;
        for (std::size_t b = 0; b < count; ++b) {
            const float magnitude = std::fabs(largest_of(values + b * block) - offset);
            if (nested < magnitude) nested = magnitude;
        }
        const float inverse = nested == 0 ? 0 : 1 / nested;
        for (std::size_t b = 0; b < count; ++b)
            to[b] = nested == 0 ? std::byte{0} : scale_code((largest_of(values + b * block) - offset) * inverse);
        return nested;
    }
    static std::byte scale_code(float quotient) {
        const float within = quotient < -1 ? -1.0f : quotient > 1 ? 1.0f : quotient;
        const auto step = static_cast<int>(static_cast<float>(static_cast<double>((within + 1) * 0.5f * 65535) + 0.5));
        return static_cast<std::byte>(detail::signed_dynamic_values.nearest(-1 + 2.0 * step / 65535));
    }
};

static_assert(block_format<nf4>);

}  // namespace HALFTONE_ABI
}  // namespace halftone
