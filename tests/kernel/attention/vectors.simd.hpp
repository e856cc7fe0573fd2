// SPDX-License-Identifier: MIT
/// \file
/// Attention's functions of single vectors, on arrays whose length is a multiple of four vectors.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/attention/cpu/tiles.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

inline void attention_powers_of(const float* x, float* y, extent count) {
    for (extent i = 0; i < count; i += 4 * f32::lanes) {
        f32 v[4];
        for (int l = 0; l < 4; ++l) v[l] = load(x + i + l * f32::lanes);
        attention_math::powers(v);
        for (int l = 0; l < 4; ++l) store(y + i + l * f32::lanes, v[l]);
    }
}

template <class T>
void attention_rounded(const float* x, float* y, extent count) {
    for (extent i = 0; i < count; i += f32::lanes) store(y + i, round_as<T>(load(x + i)));
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
