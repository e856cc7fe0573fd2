// SPDX-License-Identifier: MIT
/// \file
/// Conversions between codes of the dynamic map and vectors of floats, in two ways with the same bits: by tables in
/// memory, and by arithmetic on tables in registers (dynamic_codec.hpp). The set chooses, by looks_up_in_registers.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/dynamic_codec.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// The codes of quotients between -1 and 1 from the ranks of their magnitudes: dynamic_code() in each lane.
template <bool HasSign>
HALFTONE_INLINE words with_sign(words rank, f32 quotient, std::uint32_t zero) {
    if constexpr (!HasSign) return rank;
    const mask is_negative = less(quotient, splat(0.0f));
    const words bounded = smaller_word(larger_word(rank, words_of(1)), words_of(zero));
    return choose(is_negative, zero - bounded, zero + rank);
}

/// The codes of quotients by the tables of the map.
template <bool HasSign>
HALFTONE_INLINE words codes_by_cells(const kernel::dynamic_map& map, f32 quotient) {
    constexpr std::uint32_t least = kernel::dynamic_map::least;
    const words clamped = larger_word(words_of(quotient) & 0x7fffffffu, words_of(least));
    const words rank = (look_up(map.cells, (clamped >> 16) - (least >> 16)) + (clamped & 0xffffu)) >> 16;
    return with_sign<HasSign>(rank, quotient, map.zero);
}

/// Converts codes to values, and quotients to codes, by the tables of the map.
template <bool HasSign>
struct codec_by_tables {
    const kernel::dynamic_map& map;

    codec_by_tables(const kernel::dynamic_map& m, const kernel::dynamic_codec&) : map(m) {}
    HALFTONE_INLINE f32 values(words codes) const { return floats_of(look_up(map.values, codes)); }
    HALFTONE_INLINE words decades(f32) const { return words{}; }
    HALFTONE_INLINE words codes(f32 quotient, words) const { return codes_by_cells<HasSign>(map, quotient); }
    HALFTONE_INLINE words codes(f32 quotient) const { return codes(quotient, words{}); }
};

/// Converts codes to values, and quotients to codes, by arithmetic. `values` needs a multiply-add with one rounding.
template <bool HasSign>
struct codec_by_arithmetic {
    const kernel::dynamic_map& map;
    small_table slope_high, slope_low, offset_high, offset_low, next, rank_slope, rank_offset, last;
    float least;

    codec_by_arithmetic(const kernel::dynamic_map& m, const kernel::dynamic_codec& c)
        : map(m),
          slope_high(load_small_table(c.slope_high)),
          slope_low(load_small_table(c.slope_low)),
          offset_high(load_small_table(c.offset_high)),
          offset_low(load_small_table(c.offset_low)),
          next(load_small_table(c.next)),
          rank_slope(load_small_table(c.rank_slope)),
          rank_offset(load_small_table(c.rank_offset)),
          last(load_small_table(c.last)),
          least(c.least) {}

    HALFTONE_INLINE f32 values(words codes) const {
        constexpr std::uint32_t zero = HasSign ? (1u << kernel::dynamic_map::decades) - 1 : 0;
        const words from_zero = codes - zero;
        const f32 n = converted(HasSign ? magnitude_of_word(from_zero) : from_zero + 1);
        const words exponent = words_of(n) >> 23;
        const f32 high = fma(n, floats_of(look_up(slope_high, exponent)), floats_of(look_up(offset_high, exponent)));
        const f32 low = fma(n, floats_of(look_up(slope_low, exponent)), floats_of(look_up(offset_low, exponent)));
        const words value = where_not_zero(from_zero, words_of(high + low));
        return floats_of(HasSign ? value | (from_zero & 0x80000000u) : value);
    }
    /// The decade of a quotient, which codes() needs: the first half of the work.
    HALFTONE_INLINE words decades(f32 quotient) const {
        using codec = kernel::dynamic_codec;
        const f32 magnitude = HasSign ? abs(quotient) : quotient;
        const words upper = words_of(magnitude) + (codec::decade_offset << 16);
        const words at_most = multiply_high_halves(upper, words_of(codec::decade_factor << 16)) >> 16;
        return add_where(less_equal(floats_of(look_up(next, at_most)), magnitude), at_most, 1);
    }
    HALFTONE_INLINE words codes(f32 quotient, words decade) const {
        const f32 magnitude = HasSign ? abs(quotient) : quotient;
        const f32 place = fma(magnitude, floats_of(look_up(rank_slope, decade)), floats_of(look_up(rank_offset, decade)));
        const words t = smaller_word(truncated(place), look_up(last, decade));
        // A boundary is near where the lower 16 bits are within the margin of a multiple of 2^16.
        constexpr std::uint32_t margin = kernel::dynamic_codec::margin, far = 0xffffu & ~(2 * margin - 1);
        if (__builtin_expect(any_clear(t + margin, far), 0)) return codes_by_cells<HasSign>(map, quotient);
        return with_sign<HasSign>(keep_where(less_equal(splat(least), magnitude), t >> 16), quotient, map.zero);
    }
    HALFTONE_INLINE words codes(f32 quotient) const { return codes(quotient, decades(quotient)); }
};

template <bool HasSign>
using dynamic_codec = std::conditional_t<looks_up_in_registers, codec_by_arithmetic<HasSign>, codec_by_tables<HasSign>>;

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
