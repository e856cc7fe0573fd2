// SPDX-License-Identifier: MIT
/// \file
/// Conversions between vectors of float and numbers of a user's own type (number/traits.hpp), a lane at a time by the
/// type's own conversions, or, from one byte, by a table (number/code_table.hpp).
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <utility>

#include <halftone/exec/cpu/simd/avx2.hpp>
#include <halftone/exec/cpu/simd/avx512.hpp>
#include <halftone/exec/cpu/simd/portable.hpp>
#include <halftone/number/code_table.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// p[i] in lane i, without a detour through memory, which would wait for the stores of all lanes.
template <own_number T, int... I>
HALFTONE_INLINE f32 lanes_of(const T* p, std::integer_sequence<int, I...>) {
    return {decltype(f32::v){halftone::detail::widened(p[I])...}};
}
template <own_number T>
HALFTONE_INLINE f32 load(const T* p) {
    return lanes_of(p, std::make_integer_sequence<int, f32::lanes>{});
}
template <own_number T>
HALFTONE_INLINE f32 load(const T* p, int n) {
    if (n == f32::lanes) return load(p);
    float lanes[f32::lanes] = {};
    for (int i = 0; i < n; ++i) lanes[i] = halftone::detail::widened(p[i]);
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
