// SPDX-License-Identifier: MIT
/// \file
/// A step with 8-bit moments for some elements: the moments of a few blocks at a time are converted to floats, updated
/// by the step of optimizer_step/cpu.simd.hpp, and rounded to codes again.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/eight_bit.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// The maximum and the minimum of integers below 2^31, in each lane.
HALFTONE_INLINE words larger_word(words a, words b) {
    using integers = std::int32_t __attribute__((vector_size(sizeof(words))));
    return reinterpret_cast<integers>(a) > reinterpret_cast<integers>(b) ? a : b;
}
HALFTONE_INLINE words smaller_word(words a, words b) {
    using integers = std::int32_t __attribute__((vector_size(sizeof(words))));
    return reinterpret_cast<integers>(a) < reinterpret_cast<integers>(b) ? a : b;
}

/// The codes of floats between -1 and 1.
template <bool HasSign>
HALFTONE_INLINE words dynamic_codes_of(const kernel::dynamic_map& map, f32 x) {
    constexpr std::uint32_t least = kernel::dynamic_map::least;
    const words bits = words_of(x), magnitude = bits & 0x7fffffffu, clamped = larger_word(magnitude, words_of(least));
    const words rank = (look_up(map.cells, (clamped >> 16) - (least >> 16)) + (clamped & 0xffffu)) >> 16;
    if constexpr (!HasSign) return rank;
    // dynamic_code() in each lane.
    const words zero = words_of(map.zero), bounded = smaller_word(larger_word(rank, words_of(1)), zero);
    using integers = std::int32_t __attribute__((vector_size(sizeof(words))));
    const auto is_negative = (reinterpret_cast<integers>(bits) < 0) & (magnitude != 0);
    return is_negative ? zero - bounded : zero + rank;
}

/// Converts the codes of one block to moments.
HALFTONE_INLINE void read_block(const kernel::dynamic_map& map, const std::uint8_t* codes, float absmax, extent count,
                                float* to) {
    const f32 most = splat(absmax);
    for_vectors(count, [&](extent i, int, auto n) __attribute__((always_inline)) {
        store(to + i, floats_of(look_up(map.values, load_eight_bit(codes + i, lanes_of(n)))) * most, n);
    });
}

template <bool HasSign>
HALFTONE_INLINE void write_codes(const kernel::dynamic_map& map, const float* from, f32 divisor, extent count,
                                 std::uint8_t* codes) {
    for_vectors(count, [&](extent i, int, auto n) __attribute__((always_inline)) {
        store_eight_bit(codes + i, dynamic_codes_of<HasSign>(map, load(from + i, n) / divisor), lanes_of(n));
    });
}

/// Rounds one block of moments to codes; returns their largest magnitude.
inline float write_block(const kernel::dynamic_map& map, const float* from, extent count, std::uint8_t* codes) {
    f32 most = splat(0.0f);
    for_vectors(count, [&](extent i, int, auto n) __attribute__((always_inline)) { most = max(abs(load(from + i, n)), most); });
    const float absmax = maximum(most);
    const f32 divisor = splat(absmax > 0 ? absmax : 1.0f);
    if (map.has_sign()) {
        write_codes<true>(map, from, divisor, count, codes);
    } else {
        write_codes<false>(map, from, divisor, count, codes);
    }
    return absmax;
}

template <class Rule, rounding Rounding, rounding CopyRounding, class Param, class Copy, class Accumulate>
void eight_bit_step_elements(extent count, Param* master, Copy* copy, const Accumulate* gradient, std::uint8_t* const* codes,
                             float* const* absmax, const kernel::dynamic_map* const* maps, const typename Rule::scalars& s,
                             const kernel::gradient_factors& factors, const kernel::rounding_key& key, std::uint32_t step,
                             extent index, bool stores_non_temporal, float* average, float average_weight) {
    constexpr extent block = kernel::eight_bit_block, at_once = 4 * block;
    alignas(64) float held[Rule::moments][at_once];
    float* moments[Rule::moments];
    for (int k = 0; k < Rule::moments; ++k) moments[k] = held[k];
    const auto each_block = [&](extent begin, const auto& of) __attribute__((always_inline)) {
        for (int k = 0; k < Rule::moments; ++k) {
            for (extent first = begin; first < begin + at_once && first < count; first += block)
                of(k, first, count - first < block ? count - first : block, held[k] + (first - begin));
        }
    };
    for (extent begin = 0; begin < count; begin += at_once) {
        each_block(begin, [&](int k, extent first, extent n, float* m) __attribute__((always_inline)) {
            read_block(*maps[k], codes[k] + first, absmax[k][first / block], n, m);
        });
        optimizer_step_elements<Rule, true, Rounding, CopyRounding, Param, Copy, Accumulate, float>(
            count - begin < at_once ? count - begin : at_once, master + begin, copy == nullptr ? nullptr : copy + begin,
            gradient + begin, moments, s, factors, key, step, index + begin, stores_non_temporal,
            average == nullptr ? nullptr : average + begin, average_weight);
        each_block(begin, [&](int k, extent first, extent n, const float* m) __attribute__((always_inline)) {
            absmax[k][first / block] = write_block(*maps[k], m, n, codes[k] + first);
        });
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
