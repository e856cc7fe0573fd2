// SPDX-License-Identifier: MIT
/// \file
/// `cvt`: section 9.7.9.22 of the PTX ISA's manual.
#include <cmath>
#include <limits>

#include <halftone/number.hpp>
#include <halftone/number/saturate.hpp>

#include "ptx/by_type.hpp"
#include "ptx/decode.hpp"

namespace halftone::ptx {

namespace {

template <class To, class From>
To converted(From x, bool saturates, int rounding) {
    if constexpr (std::is_floating_point_v<From>) {
        if (rounding == 'z') x = std::trunc(x);
        if (rounding == 'n') x = std::nearbyint(x);
        if (rounding == 'm') x = std::floor(x);
        if (rounding == 'p') x = std::ceil(x);
        if constexpr (std::is_integral_v<To>) {
            if (x != x) return sizeof(To) == 8 ? static_cast<To>(std::uint64_t{1} << 63) : To{0};
            constexpr double least = static_cast<double>(std::numeric_limits<To>::min());
            if (static_cast<double>(x) <= least) return std::numeric_limits<To>::min();
            if (static_cast<double>(x) >= static_cast<double>(std::numeric_limits<To>::max()))
                return std::numeric_limits<To>::max();
            return static_cast<To>(x);
        } else {
            if (saturates) x = x > From{0} ? std::min(x, From{1}) : From{0};
            return quiet(static_cast<To>(x));
        }
    } else {
        return static_cast<To>(x);
    }
}
template <class To, class From>
constexpr handler convert = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        const To r = converted<To>(w.get<From>(i.from[0], l), (i.option & 256) != 0, i.option & 255);
        if constexpr (std::is_integral_v<To> && std::is_signed_v<To> && sizeof(To) < 4) {
            w.set<std::int32_t>(i.to[0], l, r);  // narrow integers are sign-extended
        } else {
            w.set<To>(i.to[0], l, r);
        }
    });
};
template <class To, class From>
constexpr handler convert_number = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        if constexpr (std::is_same_v<To, float>) {
            w.set<float>(i.to[0], l, static_cast<float>(From::from_bits(w.get<std::uint16_t>(i.from[0], l))));
        } else {
            const From x = w.get<From>(i.from[0], l);
            w.set<std::uint16_t>(i.to[0], l, x == x ? To(x).bits() : std::uint16_t{0x7fff});
        }
    });
};
/// Converts two floats into one word; the first is in the upper half.
template <class To>
constexpr handler convert_pair = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        const auto bits = [&](int n) {
            const float x = w.get<float>(i.from[static_cast<std::size_t>(n)], l);
            return x == x ? To(x).bits() : std::uint16_t{0x7fff};
        };
        w.set<std::uint32_t>(i.to[0], l, static_cast<std::uint32_t>(bits(0)) << 16 | bits(1));
    });
};
/// Converts two bytes to two 16-bit numbers, exactly.
template <class From>
constexpr handler widen_pair = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        const std::uint16_t both = w.get<std::uint16_t>(i.from[0], l);
        const auto half = [&](int n) -> std::uint32_t {
            return float16(static_cast<float>(From::from_bits(static_cast<std::uint8_t>(both >> (8 * n))))).bits();
        };
        w.set<std::uint32_t>(i.to[0], l, half(1) << 16 | half(0));
    });
};
/// Converts two floats into two bytes; the first is in the upper byte; numbers that are too large saturate.
template <class To>
constexpr handler narrow_pair = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        const auto byte = [&](std::size_t n) -> std::uint16_t {
            const float x = w.get<float>(i.from[n], l);
            return x == x ? To(clamp_to<To>(x)).bits() : std::uint16_t{0x7f};
        };
        w.set<std::uint16_t>(i.to[0], l, static_cast<std::uint16_t>(byte(0) << 8 | byte(1)));
    });
};
constexpr handler convert_tf32 = [](warp& w, const instruction& i, lane_mask m) {
    each_lane(m, [&](int l) {
        const std::uint32_t bits = w.get<std::uint32_t>(i.from[0], l);
        w.set<std::uint32_t>(i.to[0], l,
                             (bits & 0x7f800000u) == 0x7f800000u ? bits & ~0x1fffu : (bits + 0x1000u) & ~0x1fffu);
    });
};

}  // namespace

handler decode_convert(instruction& i, const mnemonic& name) {
    if (name.operation() != "cvt") return nullptr;
    const std::string_view to = name.words[name.words.size() - 2], from = name.type();
    for (const std::string_view p : name.words) {
        if (p == "sat") i.option |= 256;
        if (p == "rzi" || p == "rni" || p == "rmi" || p == "rpi") i.option |= p[1];
    }
    if (to == "tf32") return convert_tf32;
    if (from == "e4m3x2") return to == "f16x2" ? widen_pair<float8_e4m3> : nullptr;
    if (from == "e5m2x2") return to == "f16x2" ? widen_pair<float8_e5m2> : nullptr;
    if (to == "e4m3x2") return from == "f32" ? narrow_pair<float8_e4m3> : nullptr;
    if (to == "e5m2x2") return from == "f32" ? narrow_pair<float8_e5m2> : nullptr;
    if (to == "bf16x2") return convert_pair<bfloat16>;
    if (to == "f16x2") return convert_pair<float16>;
    if (to == "bf16" && from == "f32") return convert_number<bfloat16, float>;
    if (to == "f16" && from == "f32") return convert_number<float16, float>;
    if (to == "f32" && from == "bf16") return convert_number<float, bfloat16>;
    if (to == "f32" && from == "f16") return convert_number<float, float16>;
    return by_type(from, [&](auto f) {
        return by_type(
            to, [&](auto t) -> handler { return convert<typename decltype(t)::type, typename decltype(f)::type>; });
    });
}

}  // namespace halftone::ptx
