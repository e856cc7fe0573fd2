// SPDX-License-Identifier: MIT
/// \file
/// A step of AdamW over some elements; `index` is that of the first one in the run.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstdint>
#include <type_traits>

#include <halftone/kernel/adamw/adamw.hpp>
#include <halftone/kernel/common/update/cpu.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <rounding Rounding, rounding CopyRounding, class Param, class Copy, class Accumulate, class State>
void adamw_elements(extent count, Param* master, Copy* copy, const Accumulate* gradient, State* first, State* second,
                    const kernel::adamw_scalars& s, const kernel::gradient_factors& factors,
                    const kernel::rounding_key& key, std::uint32_t step, extent index, bool streams) {
    constexpr bool random_moments = !std::is_same_v<State, float>;
    constexpr bool is_split = std::is_same_v<Param, bfloat16_remainder>;
    constexpr bool random_master = Rounding == rounding::stochastic && !std::is_same_v<Param, float> && !is_split;
    const gradient_reader reader = reader_of(factors);
    random_tile for_master, for_first, for_second;
    alignas(64) Copy streamed[random_tile::size];
    for (extent begin = 0; begin < count; begin += random_tile::size) {
        if constexpr (random_master) fill(for_master, key, 0, step, index + begin);
        if constexpr (random_moments) fill(for_first, key, 1, step, index + begin);
        if constexpr (random_moments) fill(for_second, key, 2, step, index + begin);
        const extent here = count - begin < random_tile::size ? count - begin : random_tile::size;
        prefetch_tile(gradient + begin);
        prefetch_tile(first + begin);
        prefetch_tile(second + begin);
        prefetch_tile(master + begin);
        if constexpr (is_split) prefetch_tile(copy + begin);
        const bool streams_here = streams && here == random_tile::size;
        Copy* const rounded = streams_here ? streamed : copy == nullptr ? nullptr : copy + begin;
        for_vectors(here, [&](extent k, int, auto n) __attribute__((always_inline)) {
            const extent j = begin + k;
            const f32 g = apply(reader, load(gradient + j, n));
            f32 m = load(first + j, n), v = load(second + j, n);
            m = fma(g - m, splat(s.first_weight), m);
            v = fma(g * s.second_weight, g, v * s.second_decay);
            store_stochastic(first + j, m, n, for_first, k);
            store_stochastic(second + j, v, n, for_second, k);

            const f32 denominator = fma(sqrt(v), s.root_scale, splat(s.epsilon));
            const f32 w =
                fma(load_master(master + j, is_split ? copy + j : copy, n), s.decay, m * -s.step_size / denominator);
            if constexpr (is_split) {
                store_halves(master + j, copy + j, w, n);
            } else if constexpr (random_master) {
                store_stochastic(master + j, w, n, for_master, k);
            } else {
                store(master + j, w, n);
            }
            if constexpr (!is_split) {
                if (copy != nullptr)
                    store_copy<CopyRounding>(rounded + k, std::is_same_v<Param, float> ? w : load(master + j, n), n);
            }
        });
        if (streams_here) stream(copy + begin, streamed, sizeof streamed);
    }
    if (streams) end_streams();
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
