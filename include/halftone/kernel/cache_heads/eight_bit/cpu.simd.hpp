// SPDX-License-Identifier: MIT
/// \file
/// The vector of one head and token in eight bits; eight_bit.hpp has the formulas.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/cache_heads/eight_bit/eight_bit.hpp>
#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/quantize/cpu.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// Stores the codes; returns the scale.
template <class T>
float quantize_head(extent count, const T* x, std::int8_t* codes) {
    const float scale = kernel::scale_of_heads(largest_magnitude<T>(count, x));
    if (!(scale > 0)) {
        for (extent d = 0; d < count; ++d) codes[d] = 0;
        return scale;
    }
    const f32 by = splat(scale), most = splat(kernel::most_code);
    // In the sum with 1.5 2^23 an integer is in the lowest bits, as two's complement; the addition rounds to it.
    const f32 integers = splat(0x1.8p23f);
    for_vectors(count, [&](extent d, int, auto n) __attribute__((always_inline)) {
        const f32 code = min(max(load(x + d, n) / by, -most), most);
        store_eight_bit(codes + d, words_of(code + integers) & 0xffu, lanes_of(n));
    });
    return scale;
}

/// Stores the values of `tokens` vectors, one behind the other.
template <class T>
void dequantize_heads(extent tokens, extent head_size, const std::int8_t* codes, const float* scales, T* to) {
    // A code plus 128, in the lowest bits of 2^23.
    const f32 offset = splat(0x1p23f + 128.0f);
    for (extent t = 0; t < tokens; ++t, codes += head_size, to += head_size) {
        const f32 by = splat(scales[t]);
        for_vectors(head_size, [&](extent d, int, auto n) __attribute__((always_inline)) {
            const words code = (load_eight_bit(codes + d, lanes_of(n)) ^ 0x80u) | 0x4b000000u;
            store(to + d, (floats_of(code) - offset) * by, n);
        });
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
