// SPDX-License-Identifier: MIT
/// \file
/// Number types that the library does not know, as a user would write them, and policies that name them.
#pragma once

#include <cstdint>

#include <halftone/number/bits.hpp>
#include <halftone/number/traits.hpp>
#include <halftone/policy/presets.hpp>

namespace support {

/// 16 bits: a sign, 6 bits of exponent, 9 of fraction; no infinities, and one NaN, which is what larger numbers become.
class float16_e6m9 {
  public:
    float16_e6m9() = default;
    HALFTONE_HD constexpr explicit float16_e6m9(float x) : code_(encode(halftone::bit_cast<std::uint32_t>(x))) {}
    HALFTONE_HD constexpr operator float() const {
        const std::uint32_t sign = code_ >> 15 << 31, magnitude = code_ & 0x7fffu;
        if (magnitude == nan) return halftone::bit_cast<float>(sign | 0x7fc00000u);
        if (magnitude < 512) return (sign != 0 ? -1.0f : 1.0f) * static_cast<float>(magnitude) * 0x1p-39f;
        return halftone::bit_cast<float>(sign | ((magnitude << 14) + (96u << 23)));
    }

  private:
    static constexpr std::uint32_t nan = 0x7fff;

    HALFTONE_HD static constexpr std::uint16_t encode(std::uint32_t bits) {
        const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
        std::uint32_t code = nan;
        if (magnitude < 97u << 23) {  // subnormal: adding 2^-16 leaves multiples of 2^-39, rounded to nearest even
            code = halftone::bit_cast<std::uint32_t>(halftone::bit_cast<float>(magnitude) + 0x1p-16f) - (111u << 23);
        } else if (magnitude < 0x7f800000u) {
            code = (magnitude - (96u << 23) + 0x1fffu + (magnitude >> 14 & 1u)) >> 14;
        }
        return static_cast<std::uint16_t>(sign | (code < nan ? code : nan));
    }

    std::uint16_t code_;
};

/// 8 bits: a sign, and 8 times the logarithm to base 2 plus 64, from 1 to 127; 0 for zero, and one NaN, which is what larger
/// numbers become. Neighbours differ by a factor of 1.09.
class log8 {
  public:
    log8() = default;
    HALFTONE_HD constexpr explicit log8(float x) : code_(encode(halftone::bit_cast<std::uint32_t>(x))) {}
    HALFTONE_HD constexpr operator float() const {
        if (code_ == nan) return halftone::bit_cast<float>(0x7fc00000u);
        return code_ >> 7 != 0 ? -magnitude_of(code_ & 0x7fu) : magnitude_of(code_);
    }
    /// One of the two neighbours of x, so that the mean over all `random` is x.
    HALFTONE_HD static constexpr log8 round_stochastic(float x, std::uint32_t random) {
        log8 rounded(x);
        const float magnitude = x < 0 ? -x : x;
        if (rounded.code_ == nan || magnitude >= magnitude_of(127)) return rounded;
        std::uint32_t lower = rounded.code_ & 0x7fu;
        if (magnitude_of(lower) > magnitude) --lower;
        const float from = magnitude_of(lower), share = (magnitude - from) / (magnitude_of(lower + 1) - from);
        const std::uint32_t code = static_cast<float>(random >> 8) * 0x1p-24f < share ? lower + 1 : lower;
        rounded.code_ = static_cast<std::uint8_t>(code == 0 || x > 0 ? code : code | 0x80u);
        return rounded;
    }

  private:
    static constexpr std::uint8_t nan = 0x80;

    HALFTONE_HD static constexpr float magnitude_of(std::uint32_t logarithm) {
        if (logarithm == 0) return 0;
        const std::uint32_t bits = halftone::bit_cast<std::uint32_t>(root(logarithm & 7));
        return halftone::bit_cast<float>(bits + (logarithm / 8 << 23) - (8u << 23));
    }
    /// 2^(i/8)
    HALFTONE_HD static constexpr float root(std::uint32_t i) {
        constexpr float roots[] = {1,
                                   0x1.172b84p+0f,
                                   0x1.306fe0p+0f,
                                   0x1.4bfdaep+0f,
                                   0x1.6a09e6p+0f,
                                   0x1.8ace54p+0f,
                                   0x1.ae89fap+0f,
                                   0x1.d5818ep+0f,
                                   2};
        return roots[i];
    }
    HALFTONE_HD static constexpr std::uint8_t encode(std::uint32_t bits) {
        const std::uint32_t magnitude = bits & 0x7fffffffu;
        if (magnitude >= 0x7f800000u) return nan;
        const double x = static_cast<double>(halftone::bit_cast<float>(magnitude));
        std::uint32_t code = 0;
        if (x > 0x1.172b84p-9) {  // half of the least number; what is between it and the least number becomes that
            const std::uint32_t exponent = magnitude >> 23;
            const double significand = static_cast<double>(halftone::bit_cast<float>((magnitude & 0x7fffffu) | 0x3f800000u));
            while (code < 8 && significand > (static_cast<double>(root(code)) + static_cast<double>(root(code + 1))) / 2) ++code;
            code = exponent < 119 || (exponent == 119 && code == 0) ? 1 : code + (exponent - 119) * 8;
        }
        if (code > 127) return nan;
        return static_cast<std::uint8_t>(code == 0 ? 0 : code | (bits >> 24 & 0x80u));
    }

    std::uint8_t code_;
};

/// 16 bits: multiples of 2^-12 up to almost 8. Larger numbers become the largest, NaNs zero. The code -32768, which no
/// conversion makes, is read as -32767, so that all numbers are in the traits' range.
class fixed16 {
  public:
    fixed16() = default;
    HALFTONE_HD constexpr explicit fixed16(float x) : code_(encode(x)) {}
    HALFTONE_HD constexpr operator float() const { return static_cast<float>(code_ < -32767 ? -32767 : code_) * 0x1p-12f; }

  private:
    HALFTONE_HD static constexpr std::int16_t encode(float x) {
        const std::uint32_t bits = halftone::bit_cast<std::uint32_t>(x), magnitude = bits & 0x7fffffffu;
        if (magnitude > 0x7f800000u) return 0;
        const bool beyond = magnitude >= 0x41000000u;  // 8
        const auto steps = beyond ? 32767 : static_cast<int>(static_cast<double>(halftone::bit_cast<float>(magnitude)) * 4096 + 0.5);
        const int most = steps > 32767 ? 32767 : steps;
        return static_cast<std::int16_t>(bits >> 31 != 0 ? -most : most);
    }

    std::int16_t code_;
};

/// 32 bits: multiples of 2^-26 up to almost 32, more than float holds: it converts to and from double. Larger numbers become the
/// largest, NaNs zero; the code of -32 is read as that of the number above.
class fixed32 {
  public:
    fixed32() = default;
    HALFTONE_HD constexpr explicit fixed32(double x) : code_(encode(x)) {}
    HALFTONE_HD constexpr operator double() const { return (code_ == -largest - 1 ? -largest : code_) * 0x1p-26; }

  private:
    static constexpr std::int32_t largest = 0x7fffffff;

    HALFTONE_HD static constexpr std::int32_t encode(double x) {
        const std::uint64_t bits = halftone::bit_cast<std::uint64_t>(x), magnitude = bits & 0x7fffffffffffffffu;
        if (magnitude > 0x7ff0000000000000u) return 0;
        const double steps = halftone::bit_cast<double>(magnitude) * 0x1p26;
        const std::int32_t nearest = steps >= 0x7fffffff ? largest : static_cast<std::int32_t>(steps + 0.5);
        return bits >> 63 != 0 ? -nearest : nearest;
    }

    std::int32_t code_;
};

}  // namespace support

template <>
struct halftone::number_traits<support::float16_e6m9> : halftone::ieee_format<10, -29, 33> {
    static constexpr const char* name = "float16_e6m9";
    static constexpr bool ieee_encoding = false;
    static constexpr bool has_infinity = false;
    static constexpr double max = 0x1.ffp32;
};

template <>
struct halftone::number_traits<support::log8> : halftone::ieee_format<24, -7, 8> {
    static constexpr const char* name = "log8";
    static constexpr bool ieee_encoding = false;
    static constexpr bool ieee_spacing = false;
    static constexpr bool has_infinity = false;
    static constexpr double unit_roundoff = 0.0433;
    static constexpr double max = 0x1.d5818ep+7;
    static constexpr double min_normal = 0x1.172b84p-8;
    static constexpr double min_subnormal = min_normal;
};

template <>
struct halftone::number_traits<support::fixed16> : halftone::fixed_format<3, 12> {
    static constexpr const char* name = "fixed16";
};

template <>
struct halftone::number_traits<support::fixed32> : halftone::fixed_format<5, 26> {
    static constexpr const char* name = "fixed32";
};

namespace support {

/// Operands, results, gradients and the residual stream in 6 bits of exponent.
struct amp_e6m9 : halftone::amp_fp16 {
    using compute = float16_e6m9;
    using output = float16_e6m9;
    using grad = float16_e6m9;
    using stream = float16_e6m9;
};
/// And all that is kept, too, but moments.
struct pure_e6m9 : amp_e6m9 {
    using param = float16_e6m9;
    using accumulate = float16_e6m9;
    using reduce = float16_e6m9;
    static constexpr halftone::rounding param_rounding = halftone::rounding::stochastic;
};
/// Eight bits: products read numbers of a tensor times a scale, as under ht::fp8_hybrid.
struct log8_hybrid : halftone::fp8_hybrid {
    using compute = log8;
    using grad = log8;
};
using fixed_operands = halftone::with_compute<halftone::full_fp32, fixed16>;
/// Masters that float does not hold, under operands and results of the first type.
using fixed_masters = halftone::with_param<amp_e6m9, fixed32>;

}  // namespace support
