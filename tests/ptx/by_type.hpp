// SPDX-License-Identifier: MIT
/// \file
/// Building blocks of instruction handlers: lane by lane, for the type at the end of an instruction's name.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "ptx/machine.hpp"

namespace halftone::ptx {

template <class F>
void each_lane(lane_mask m, const F& f) {
    if (m == ~lane_mask{0}) {
        for (int l = 0; l < lanes; ++l) f(l);
        return;
    }
    for (; m != 0; m &= m - 1) f(std::countr_zero(m));
}

template <class T>
struct tag {
    using type = T;
};
/// f(tag<T>) for the type of that name.
template <class F>
handler by_type(std::string_view t, const F& f) {
    if (t == "s32") return f(tag<std::int32_t>{});
    if (t == "u32" || t == "b32") return f(tag<std::uint32_t>{});
    if (t == "s64") return f(tag<std::int64_t>{});
    if (t == "u64" || t == "b64") return f(tag<std::uint64_t>{});
    if (t == "s16") return f(tag<std::int16_t>{});
    if (t == "u16" || t == "b16") return f(tag<std::uint16_t>{});
    if (t == "s8") return f(tag<std::int8_t>{});
    if (t == "u8" || t == "b8") return f(tag<std::uint8_t>{});
    if (t == "f32") return f(tag<float>{});
    if (t == "f64") return f(tag<double>{});
    return nullptr;
}
template <class F>
handler by_whole(std::string_view t, const F& f) {
    return by_type(t, [&](auto kind) -> handler {
        if constexpr (std::is_integral_v<typename decltype(kind)::type>) return f(kind);
        return nullptr;
    });
}
template <class F>
handler by_real(std::string_view t, const F& f) {
    return by_type(t, [&](auto kind) -> handler {
        if constexpr (std::is_floating_point_v<typename decltype(kind)::type>) return f(kind);
        return nullptr;
    });
}

/// The NaN that the hardware returns.
template <class T>
T quiet(T x) {
    if (x == x) return x;
    return sizeof(T) == 4 ? static_cast<T>(std::bit_cast<float>(0x7fffffffu))
                          : static_cast<T>(std::numeric_limits<double>::quiet_NaN());
}

/// Handlers that apply F lane by lane: to[0] = F(from[0], ...), with operands of type T.
template <class T, class F, class R = T>
constexpr handler unary = [](warp& w, const instruction& i, lane_mask m) {
    std::uint64_t* const to = w.values(i.to[0]);
    const std::uint64_t* const a = w.values(i.from[0]);
    each_lane(m, [&](int l) { to[l] = bits_from(R(F{}(low<T>(a[l])))); });
};
template <class T, class F, class R = T, class B = T>
constexpr handler binary = [](warp& w, const instruction& i, lane_mask m) {
    std::uint64_t* const to = w.values(i.to[0]);
    const std::uint64_t *const a = w.values(i.from[0]), *const b = w.values(i.from[1]);
    each_lane(m, [&](int l) { to[l] = bits_from(R(F{}(low<T>(a[l]), low<B>(b[l])))); });
};
template <class T, class F, class R = T, class C = T>
constexpr handler ternary = [](warp& w, const instruction& i, lane_mask m) {
    std::uint64_t* const to = w.values(i.to[0]);
    const std::uint64_t *const a = w.values(i.from[0]), *const b = w.values(i.from[1]), *const c = w.values(i.from[2]);
    each_lane(m, [&](int l) { to[l] = bits_from(R(F{}(low<T>(a[l]), low<T>(b[l]), low<C>(c[l])))); });
};

}  // namespace halftone::ptx
