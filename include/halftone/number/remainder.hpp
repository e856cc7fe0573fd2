// SPDX-License-Identifier: MIT
/// \file
/// A float in two halves of 16 bits: the bfloat16 nearest to it (ties away from zero), and the remainder, the float's
/// lower 16 bits. An fp32 master weight and its bfloat16 copy then take four bytes together, not six: kernels read the
/// first half, the optimizer joins both.
///
///     const ht::float_halves h = ht::halves_of(w);
///     h.nearest == ht::round_to<ht::bfloat16, ht::rounding::nearest_away>(w);
///     ht::join(h) == w;
///
/// Numeric contract: join(halves_of(x)) has x's bits for every float that is not NaN; a NaN comes back as the quiet
/// NaN that
/// its bfloat16 is. Ties must round away from zero: with ties to even, some bfloat16 are nearest to 65,537 floats, and
/// 16 bits can tell only 65,536 of them apart. The two roundings differ for one float in 2^17.
#pragma once

#include <halftone/number/bfloat16.hpp>
#include <halftone/number/round_to.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The lower 16 bits of a float, which its nearest bfloat16 lacks. Not a number by itself.
class bfloat16_remainder {
  public:
    bfloat16_remainder() = default;
    /// The remainder with these bits: the lower 16 of a float.
    HALFTONE_HD static constexpr bfloat16_remainder from_bits(std::uint16_t bits) {
        bfloat16_remainder result{};
        result.bits_ = bits;
        return result;
    }
    HALFTONE_HD constexpr std::uint16_t bits() const { return bits_; }

  private:
    std::uint16_t bits_;
};

/// A float in two halves: `nearest`, a bfloat16 that can be used by itself, and the bits that it lacks.
struct float_halves {
    bfloat16 nearest;
    bfloat16_remainder rest;
};

/// The halves of x: its nearest bfloat16, ties away from zero, and its lower 16 bits.
HALFTONE_HD HALFTONE_INLINE constexpr float_halves halves_of(float x) {
    const std::uint32_t bits = bit_cast<std::uint32_t>(x);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    // A NaN's remainder is zero: a nonzero one could carry into the sign in join().
    return {round_to<bfloat16, rounding::nearest_away>(x),
            bfloat16_remainder::from_bits(static_cast<std::uint16_t>(nan ? 0 : bits))};
}

/// The float whose halves these are. A remainder of half a step or more means that its bfloat16 was rounded up.
HALFTONE_HD HALFTONE_INLINE constexpr float join(const float_halves& h) {
    const std::uint32_t high = h.nearest.bits(), low = h.rest.bits();
    return bit_cast<float>((high << 16) + low - ((low & 0x8000) << 1));
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
