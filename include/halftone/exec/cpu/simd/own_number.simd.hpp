// SPDX-License-Identifier: MIT
/// \file
/// Conversions between vectors of float and numbers of a user's own type (number/traits.hpp), a lane at a time: to float by a
/// table of the type's codes or, for more than 16 bits, by the type's own conversion, as from float.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstring>
#include <utility>

#include <halftone/exec/cpu/simd/avx2.hpp>
#include <halftone/exec/cpu/simd/avx512.hpp>
#include <halftone/exec/cpu/simd/portable.hpp>
#include <halftone/number/code_table.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// value(i) in lane i, without a detour through memory, which would wait for the stores of all lanes.
template <class Value, int... I>
HALFTONE_INLINE f32 lanes_of(const Value& value, std::integer_sequence<int, I...>) {
    return {decltype(f32::v){value(I)...}};
}
template <own_number T>
HALFTONE_INLINE f32 load(const T* p) {
    constexpr auto all = std::make_integer_sequence<int, f32::lanes>{};
    if constexpr (sizeof(T) <= 2) {
        typename detail::code_table<T>::code codes[f32::lanes];
        std::memcpy(codes, p, sizeof codes);
        const float* const values = detail::widened_codes<T>();
        return lanes_of([&](int i) __attribute__((always_inline)) { return values[codes[i]]; }, all);
    } else {
        return lanes_of([p](int i) __attribute__((always_inline)) { return static_cast<float>(p[i]); }, all);
    }
}
template <own_number T>
HALFTONE_INLINE f32 load(const T* p, int n) {
    if (n == f32::lanes) return load(p);
    float lanes[f32::lanes] = {};
    if constexpr (sizeof(T) <= 2) {
        const float* const values = detail::widened_codes<T>();
        for (int i = 0; i < n; ++i) {
            typename detail::code_table<T>::code code;
            std::memcpy(&code, p + i, sizeof code);
            lanes[i] = values[code];
        }
    } else {
        for (int i = 0; i < n; ++i) lanes[i] = static_cast<float>(p[i]);
    }
    return load(lanes);
}
template <own_number T>
HALFTONE_INLINE void store(T* p, f32 a, int n) {
    float lanes[f32::lanes];
    store(lanes, a);
    for (int i = 0; i < n; ++i) p[i] = T(lanes[i]);
}
template <own_number T>
HALFTONE_INLINE void store(T* p, f32 a) {
    store(p, a, f32::lanes);
}
/// a, rounded as by storing it as T and loading it again.
template <own_number T>
HALFTONE_INLINE f32 round_own(f32 a) {
    T stored[f32::lanes];
    store(stored, a);
    return load(stored);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
