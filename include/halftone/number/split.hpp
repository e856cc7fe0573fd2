// SPDX-License-Identifier: MIT
/// \file
/// Numbers as sums of bfloat16, for matrix units that multiply nothing wider: split<bfloat16, 2> holds 17 significant
/// bits,
/// and therefore every float16; split<bfloat16, 3> holds all 24 bits of a float.
///
/// The first piece is the number rounded to bfloat16; each further piece is the rest, x minus the pieces so far,
/// rounded the
/// same way: to nearest, ties away from zero, which takes two instructions (the rest is exact with either treatment of
/// ties). Two pieces differ from a float by at most 2^-17 of it (by 2^-16 from 3.3961e38 on, where the first piece is
/// bfloat16's largest number because rounding would give infinity). Three pieces equal any float of at least 2^-110,
/// and are within 2^-134 of smaller ones, half of bfloat16's least number. A unit that treats subnormal pieces as zero
/// sees all bits of a float from 2^-103 on. A finite number has finite pieces; an infinity or a NaN is its first piece,
/// and the others are zero.
///
/// This is a format of operands, not of memory: numbers are stored as floats (storage_of). Conversion from wider types
/// rounds
/// to float first; conversion to float is exact. Arithmetic is float's.
///
/// A product of two split numbers takes the products of pieces i and j with i + j < 3, counted from 0: all four of two
/// pieces, and those six of three pieces that are large enough to change a sum in float (Henry, Tang and Heinecke,
/// "Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations", 2019).
///
///     constexpr ht::split<ht::bfloat16, 3> third(1.0f / 3);
///     static_assert(third == 1.0f / 3 && third.piece(0) == 0x1.56p-2f && third.piece(1) == -0x1.56p-11f);
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>

#include <halftone/config.hpp>
#include <halftone/number/arithmetic.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/bits.hpp>
#include <halftone/number/limits.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// A float in N pieces of T, as matrix units that multiply only T take it; stored as a float.
template <class T, int N>
class split : detail::narrow_arithmetic<split<T, N>> {
    static_assert(std::same_as<T, bfloat16> && (N == 2 || N == 3),
                  "halftone: numbers are split into bfloat16, two of them (which hold every float16) or three (which "
                  "hold every float): take ht::split<ht::bfloat16, 2> or ht::split<ht::bfloat16, 3>");

  public:
    static constexpr int pieces = N;
    /// Whether the product of a's piece i and b's piece j is part of the sum.
    HALFTONE_HD static constexpr bool takes(int i, int j) { return i + j < 3; }
    /// Bounds, relative to the product, of the sum of products that are not taken, and of the magnitudes of those that
    /// are, but for the first pieces': piece i > 0 is at most 2^(1 - 9i) of the number, to within a factor of 1 + 2^-8.
    static constexpr double dropped =
        N == 2 ? 0 : 0x1.01p0 * 0x1.01p0 * (2 * detail::power_of_two(-8 - 17) + detail::power_of_two(-17 - 17));
    static constexpr double later =
        0x1.01p0 * 0x1.01p0 *
        (2 * detail::power_of_two(-8) + detail::power_of_two(-16) + (N == 2 ? 0 : 2 * detail::power_of_two(-17)));
    /// The bound of the product of the two first pieces.
    static constexpr double first = 0x1.01p0 * 0x1.01p0;

    /// Uninitialised like a float's; `split{}` is zero.
    split() = default;
    HALFTONE_HD constexpr explicit split(float x) {
        const std::uint32_t bits = bit_cast<std::uint32_t>(x), sign = bits & 0x80000000,
                            magnitude = bits ^ sign;
        const bool finite = magnitude < 0x7f800000, beyond = finite && magnitude >= largest_bits + 0x8000;
        std::uint32_t first = nearest(bits);
        if (beyond) first = sign | largest_bits;
        if (!finite) first = magnitude > 0x7f800000 ? bits | 0x400000 : bits;
        pieces_[0] = upper_half(first);
        float rest = finite ? x - static_cast<float>(pieces_[0]) : 0.0f;
        for (int i = 1; i < N; ++i) {
            pieces_[i] = upper_half(nearest(bit_cast<std::uint32_t>(rest)));
            rest -= static_cast<float>(pieces_[i]);
        }
        // Two pieces whose sum is 2^128 would not be a float: the second piece is made smaller.
        if (N == 2 && beyond && static_cast<float>(pieces_[1]) == (sign == 0 ? 0x1p120f : -0x1p120f))
            pieces_[1] = bfloat16(sign == 0 ? 0x1.fep119f : -0x1.fep119f);
    }
    template <detail::device_arithmetic Arithmetic>
    HALFTONE_HD HALFTONE_INLINE constexpr explicit split(Arithmetic x) : split(static_cast<float>(x)) {}
    template <std::same_as<long double> LongDouble>
    HALFTONE_INLINE constexpr explicit split(LongDouble x) : split(static_cast<float>(x)) {}

    HALFTONE_HD constexpr operator float() const {
        float rest = 0;
        for (int i = N - 1; i > 0; --i) rest += static_cast<float>(pieces_[i]);
        return rest == 0 ? static_cast<float>(pieces_[0]) : static_cast<float>(pieces_[0]) + rest;
    }

    /// The pieces from the largest on, 0 <= i < N.
    HALFTONE_HD constexpr T piece(int i) const { return pieces_[i]; }

    HALFTONE_HD constexpr split operator-() const {
        split result{};
        for (int i = 0; i < N; ++i) result.pieces_[i] = -pieces_[i];
        return result;
    }

  private:
    static constexpr std::uint32_t largest_bits = 0x7f7f0000;  // bfloat16's largest number, as a float's bits

    HALFTONE_HD static constexpr std::uint32_t nearest(std::uint32_t bits) { return (bits + 0x8000) & 0xffff0000; }
    HALFTONE_HD static constexpr bfloat16 upper_half(std::uint32_t bits) {
        return bfloat16::from_bits(static_cast<std::uint16_t>(bits >> 16));
    }

    T pieces_[N];
};

template <int N>
struct number_traits<split<bfloat16, N>> : ieee_format<N == 2 ? 17 : 24, -125, 128> {
    static constexpr const char* name = N == 2 ? "split<bfloat16, 2>" : "split<bfloat16, 3>";
    static constexpr bool of_library = true;
    using storage = float;
    static constexpr bool ieee_encoding = false;
    static constexpr double max =
        N == 2 ? detail::power_of_two(127) * (2 - detail::power_of_two(-15)) : number_traits<float>::max;
    static constexpr double min_subnormal = number_traits<bfloat16>::min_subnormal;
};

namespace detail {

template <class Compute>
struct whole_operand {
    using type = Compute;
};
template <>
struct whole_operand<split<bfloat16, 3>> {
    using type = float;
};

}  // namespace detail

/// The type in which kernels multiply operands of a policy with compute type Compute when they do not split them: float
/// for split<bfloat16, 3>, which holds every float; Compute otherwise.
template <class Compute>
using unsplit = typename detail::whole_operand<Compute>::type;

}  // namespace HALFTONE_ABI
}  // namespace halftone

template <int N>
class std::numeric_limits<halftone::split<halftone::bfloat16, N>> : public std::numeric_limits<float> {
    using number = halftone::split<halftone::bfloat16, N>;
    using format = halftone::number_traits<number>;

  public:
    static constexpr bool is_iec559 = false;
    static constexpr bool has_signaling_NaN = false;  // bfloat16's conversion quietens it
    static constexpr int digits = format::significand_bits;
    static constexpr int digits10 = halftone::detail::decimal(digits - 1);
    static constexpr int max_digits10 = halftone::detail::decimal(digits) + 2;

    HALFTONE_HD static constexpr number min() noexcept { return number(format::min_normal); }
    HALFTONE_HD static constexpr number max() noexcept { return number(format::max); }
    HALFTONE_HD static constexpr number lowest() noexcept { return number(-format::max); }
    HALFTONE_HD static constexpr number denorm_min() noexcept { return number(format::min_subnormal); }
    HALFTONE_HD static constexpr number epsilon() noexcept { return number(2 * format::unit_roundoff); }
    HALFTONE_HD static constexpr number round_error() noexcept { return number(0.5); }
    HALFTONE_HD static constexpr number infinity() noexcept { return number(__builtin_huge_valf()); }
    HALFTONE_HD static constexpr number quiet_NaN() noexcept { return number(__builtin_nanf("")); }
    HALFTONE_HD static constexpr number signaling_NaN() noexcept { return quiet_NaN(); }
};
