// SPDX-License-Identifier: MIT
/// \file
/// std::numeric_limits for number types with IEEE 754's encoding, computed from their number_traits.
///
///     template <>
///     class std::numeric_limits<halftone::bfloat16>
///         : public halftone::detail::ieee_limits<halftone::bfloat16, std::uint16_t, 0, false> {};
#pragma once

#include <cstdint>
#include <limits>

#include <halftone/config.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// How many decimal digits correspond to `binary` binary ones, rounded towards zero.
constexpr int decimal(int binary) { return binary * 30103 / 100000; }

/// `Number::from_bits` takes a `Bits`: sign, exponent and fraction, followed by `Padding` zero bits. `IsInterchange`
/// says
/// whether the type is one of IEEE 754's own formats.
template <class Number, class Bits, int Padding, bool IsInterchange>
class ieee_limits {
    using format = number_traits<Number>;

  public:
    static constexpr bool is_specialized = true;
    static constexpr bool is_signed = true;
    static constexpr bool is_integer = false;
    static constexpr bool is_exact = false;
    static constexpr bool is_iec559 = IsInterchange;
    static constexpr bool is_bounded = true;
    static constexpr bool is_modulo = false;
    static constexpr bool has_infinity = true;
    static constexpr bool has_quiet_NaN = true;
    static constexpr bool has_signaling_NaN = true;
// C++23 deprecates the type of this member, which earlier programs ask for.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    static constexpr std::float_denorm_style has_denorm = std::denorm_present;
#pragma GCC diagnostic pop
    static constexpr bool has_denorm_loss = false;
    static constexpr bool traps = false;
    static constexpr bool tinyness_before = false;
    static constexpr std::float_round_style round_style = std::round_to_nearest;
    static constexpr int radix = 2;
    static constexpr int digits = format::significand_bits;
    static constexpr int digits10 = decimal(digits - 1);
    static constexpr int max_digits10 = decimal(digits) + 2;
    static constexpr int min_exponent = format::min_exponent;
    static constexpr int min_exponent10 = decimal(min_exponent - 1);
    static constexpr int max_exponent = format::max_exponent;
    static constexpr int max_exponent10 = decimal(max_exponent);

    HALFTONE_HD static constexpr Number min() noexcept { return encode(1, 0); }
    HALFTONE_HD static constexpr Number max() noexcept { return encode(special - 1, fractions - 1); }
    HALFTONE_HD static constexpr Number lowest() noexcept { return encode(sign + special - 1, fractions - 1); }
    HALFTONE_HD static constexpr Number denorm_min() noexcept { return encode(0, 1); }
    HALFTONE_HD static constexpr Number epsilon() noexcept { return encode(bias - (digits - 1), 0); }
    HALFTONE_HD static constexpr Number round_error() noexcept { return encode(bias - 1, 0); }  // 0.5
    HALFTONE_HD static constexpr Number infinity() noexcept { return encode(special, 0); }
    HALFTONE_HD static constexpr Number quiet_NaN() noexcept { return encode(special, fractions / 2); }
    HALFTONE_HD static constexpr Number signaling_NaN() noexcept { return encode(special, fractions / 4); }

  private:
    static constexpr int bias = max_exponent - 1;
    static constexpr int special = 2 * max_exponent - 1;  // the exponent field of infinities and NaNs: all ones
    static constexpr int sign = special + 1;              // the bit above the exponent field
    static constexpr int fractions = 1 << (digits - 1);   // number of different fractions

    HALFTONE_HD static constexpr Number encode(int exponent, int fraction) {
        return Number::from_bits(static_cast<Bits>(static_cast<std::uint32_t>(exponent) << (digits - 1 + Padding) |
                                                   static_cast<std::uint32_t>(fraction) << Padding));
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
