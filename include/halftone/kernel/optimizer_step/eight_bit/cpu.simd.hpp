// SPDX-License-Identifier: MIT
/// \file
/// A step with 8-bit moments for some elements: the moments of a few blocks at a time are converted to floats, updated
/// by the step of optimizer_step/cpu.simd.hpp, and rounded to codes again.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/exec/cpu/stream.hpp>
#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/optimizer_step/cpu.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/codes.hpp>
#include <halftone/kernel/optimizer_step/eight_bit/eight_bit.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// Converts the codes of one block to moments.
template <class Codec>
HALFTONE_INLINE void read_block(const Codec& codec, const std::uint8_t* codes, float absmax, extent count, float* to) {
    const f32 most = splat(absmax);
    for_vectors(count, [&](extent i, int, auto n) __attribute__((always_inline)) {
        store(to + i, codec.values(load_eight_bit(codes + i, lanes_of(n))) * most, n);
    });
}

/// Leaves codes as they are.
struct any_code {
    template <class... Count>
    HALFTONE_INLINE words raised(extent, words codes, Count...) const {
        return codes;
    }
};
/// Raises the code of 0 to 1 where the second moment that is rounded, or the first moment beside it, is not 0.
struct not_zero_code {
    const float *first, *second;
    template <class... Count>
    HALFTONE_INLINE words raised(extent i, words codes, Count... n) const {
        const words either = (words_of(load(first + i, n...)) | words_of(load(second + i, n...))) & 0x7fffffffu;
        return larger_word(codes, smaller_word(either, words_of(1)));
    }
};

/// Rounds the moments of a whole block to codes. In each turn a vector's codes are found, the next one's decades and a
/// third one's quotients, so that processors with few waiting instructions do not wait for results.
template <class Codec, class Least, class Ahead>
HALFTONE_INLINE void write_whole_block(const Codec& codec, const Least& least, const float* from, f32 divisor, std::uint8_t* codes,
                                       const Ahead& ahead) {
    constexpr extent lanes = f32::lanes, vectors = kernel::eight_bit_block / lanes;
    const auto quotient = [&](extent i) __attribute__((always_inline)) { return load(from + i % vectors * lanes) / divisor; };
    f32 now = quotient(0), next = quotient(1);
    words decades = codec.decades(now);
    for (extent i = 0; i < vectors; ++i) {
        ahead(i * lanes);
        const f32 after = quotient(i + 2);
        const words next_decades = codec.decades(next);
        store_eight_bit(codes + i * lanes, least.raised(i * lanes, codec.codes(now, decades)));
        now = next, next = after, decades = next_decades;
    }
}

/// The largest magnitude of some moments, and of a whole block.
HALFTONE_INLINE float absmax_of(const float* from, extent count) {
    f32 most = splat(0.0f);
    for_vectors(count, [&](extent i, int, auto n) __attribute__((always_inline)) { most = max(abs(load(from + i, n)), most); });
    return maximum(most);
}
HALFTONE_INLINE float absmax_of_block(const float* from) {
    constexpr extent lanes = f32::lanes;
    constexpr int chains = 4;  // a maximum takes 4 cycles, and two of them begin in each
    f32 most[chains];
#pragma GCC unroll 4
    for (int c = 0; c < chains; ++c) most[c] = splat(0.0f);
    for (extent i = 0; i < kernel::eight_bit_block; i += chains * lanes) {
#pragma GCC unroll 4
        for (int c = 0; c < chains; ++c) most[c] = max(abs(load(from + i + c * lanes)), most[c]);
    }
    return maximum(max(max(most[0], most[1]), max(most[2], most[3])));
}

/// Rounds one block of moments to codes; returns their largest magnitude.
template <class Codec, class Least, class Ahead>
HALFTONE_INLINE float write_block(const Codec& codec, const Least& least, const float* from, extent count, std::uint8_t* codes,
                                  const Ahead& ahead) {
    const float absmax = count == kernel::eight_bit_block ? absmax_of_block(from) : absmax_of(from, count);
    const f32 divisor = splat(absmax > 0 ? absmax : 1.0f);
    if (count == kernel::eight_bit_block) {
        write_whole_block(codec, least, from, divisor, codes, ahead);
        return absmax;
    }
    for_vectors(count, [&](extent i, int, auto n) __attribute__((always_inline)) {
        store_eight_bit(codes + i, least.raised(i, codec.codes(load(from + i, n) / divisor), n), lanes_of(n));
    });
    return absmax;
}

/// The codec of a moment.
template <class Rule, int Which>
HALFTONE_INLINE auto codec_of(const kernel::dynamic_maps& maps, const kernel::dynamic_codecs& codecs) {
    constexpr bool has_sign = kernel::moment_has_sign<Rule>(Which);
    return dynamic_codec<has_sign>(has_sign ? maps.with_sign : maps.without_sign,
                                   has_sign ? codecs.with_sign : codecs.without_sign);
}
/// Calls f for the number of each moment, as a type.
template <class Rule, class F>
HALFTONE_INLINE void for_moments(const F& f) {
    f(std::integral_constant<int, 0>{});
    if constexpr (Rule::moments > 1) f(std::integral_constant<int, 1>{});
    static_assert(Rule::moments <= 2);
}

template <class Rule, rounding Rounding, rounding CopyRounding, class Param, class Copy, class Accumulate>
void eight_bit_step_elements(const kernel::eight_bit_step_arguments<Rule, Param, Copy, Accumulate>& a,
                             const kernel::step_run<Accumulate>& run, const kernel::dynamic_codecs& codecs,
                             const typename Rule::scalars& s, bool stores_non_temporal) {
    const extent count = run.count;
    std::uint8_t* codes[Rule::moments];
    float *absmax[Rule::moments], *moments[Rule::moments];
    constexpr extent block = kernel::eight_bit_block, at_once = 4 * block;
    alignas(64) float held[Rule::moments][at_once];
    for (int k = 0; k < Rule::moments; ++k)
        codes[k] = run.of(a.codes[k]), absmax[k] = a.absmax[k].data() + run.first / block, moments[k] = held[k];
    const auto each_block = [&](auto which, extent begin, const auto& of) __attribute__((always_inline)) {
        constexpr int k = decltype(which)::value;
        for (extent first = begin; first < begin + at_once && first < count; first += block)
            of(first, count - first < block ? count - first : block, held[k] + (first - begin));
    };
    const auto read = [&](auto which, extent begin) __attribute__((always_inline)) {
        constexpr int k = decltype(which)::value;
        const auto codec = codec_of<Rule, k>(*a.maps, codecs);
        each_block(
            which, begin, [&](extent first, extent n, float* m) __attribute__((always_inline)) {
                read_block(codec, codes[k] + first, absmax[k][first / block], n, m);
            });
    };
    const auto write = [&](auto which, extent begin) __attribute__((always_inline)) {
        constexpr int k = decltype(which)::value;
        const auto codec = codec_of<Rule, k>(*a.maps, codecs);
        each_block(which, begin, [&](extent first, extent n, const float* m) __attribute__((always_inline)) {
            const auto ahead = [&](extent i) __attribute__((always_inline)) {
                if constexpr (k == 0) prefetch(run.gradient + first + at_once + i, 1);
                if constexpr (k == Rule::moments - 1) prefetch(run.of(a.step.master) + first + at_once + i, 1);
            };
            const auto least = [&] {
                if constexpr (kernel::moment_divides<Rule>(k)) return not_zero_code{held[0] + (first - begin), m};
                else return any_code{};
            }();
            absmax[k][first / block] = write_block(codec, least, m, n, codes[k] + first, ahead);
        });
    };
    for (extent begin = 0; begin < count; begin += at_once) {
        for_moments<Rule>([&](auto which) __attribute__((always_inline)) { read(which, begin); });
        optimizer_step_elements<Rule, true, Rounding, CopyRounding, Param, Copy, Accumulate, float>(
            a.step, {run.first + begin, count - begin < at_once ? count - begin : at_once, run.gradient + begin},
            moments, s, stores_non_temporal);
        for_moments<Rule>([&](auto which) __attribute__((always_inline)) { write(which, begin); });
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
