// SPDX-License-Identifier: MIT
/// \file
/// The largest rate of multiply-adds from registers, for peaks.hpp.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

constexpr int peak_chains = f32::lanes == 16 ? 24 : 10, peak_factors = f32::lanes == 16 ? 4 : 2;

/// Keeps a vector in its register, and its value unknown to the compiler.
HALFTONE_INLINE void hold(f32& x) {
#if defined(__x86_64__)
    __asm__ volatile("" : "+v"(x.v));
#else
    static_cast<void>(x);
#endif
}

/// Runs 2 x lanes x chains x count operations on one thread. As in a product, consecutive multiply-adds have different
/// factors: a multiplier takes less power with repeated operands, as it does with zeros. `random` holds 2 x factors
/// vectors of numbers around +1 or -1; a sum grows to a few times `count`, and is never subnormal.
inline float multiply_add_peak(long count, const float* random) {
    f32 sums[peak_chains], a[peak_factors], b[peak_factors];
#pragma GCC unroll 4
    for (int i = 0; i < peak_factors; ++i) {
        hold(a[i] = load(random + i * f32::lanes));
        hold(b[i] = load(random + (i + peak_factors) * f32::lanes));
    }
#pragma GCC unroll 24
    for (int i = 0; i < peak_chains; ++i) sums[i] = splat(static_cast<float>(i));
    for (long n = 0; n < count; ++n) {
#pragma GCC unroll 24
        for (int i = 0; i < peak_chains; ++i)
            sums[i] = fma(a[i % peak_factors], b[(i + i / peak_factors) % peak_factors], sums[i]);
#pragma GCC unroll 24
        for (int i = 0; i < peak_chains; ++i) hold(sums[i]);
    }
    f32 all = splat(0.0f);
#pragma GCC unroll 24
    for (int i = 0; i < peak_chains; ++i) all = all + sums[i];
    return sum(all);
}
inline double multiply_add_operations() { return 2.0 * f32::lanes * peak_chains; }

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
