// SPDX-License-Identifier: MIT
/// \file
/// A step of stochastic gradient descent over some elements; `index` is that of the first one in the run. The
/// coefficient `nesterov` is 0 for plain momentum; a null `momentum` is none.
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <cstdint>
#include <type_traits>

#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/sgd/sgd.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <rounding Rounding, rounding CopyRounding, class Param, class Copy, class Accumulate, class State>
void sgd_elements(extent count, Param* master, Copy* copy, const Accumulate* gradient, State* momentum,
                  const kernel::sgd_scalars& s, float nesterov, const kernel::gradient_factors& factors,
                  const kernel::rounding_key& key, std::uint32_t step, extent index, bool streams) {
    constexpr bool random_moment = !std::is_same_v<State, float>;
    constexpr bool is_split = std::is_same_v<Param, bfloat16_remainder>;
    constexpr bool random_master = Rounding == rounding::stochastic && !std::is_same_v<Param, float> && !is_split;
    const gradient_reader reader = reader_of(factors);
    random_tile for_master, for_moment;
    alignas(64) Copy streamed[random_tile::size];
    for (extent begin = 0; begin < count; begin += random_tile::size) {
        if constexpr (random_master) fill(for_master, key, 0, step, index + begin);
        if (random_moment && momentum != nullptr) fill(for_moment, key, 1, step, index + begin);
        const extent here = count - begin < random_tile::size ? count - begin : random_tile::size;
        prefetch_tile(gradient + begin);
        prefetch_tile(master + begin);
        if (momentum != nullptr) prefetch_tile(momentum + begin);
        if constexpr (is_split) prefetch_tile(copy + begin);
        const bool streams_here = streams && here == random_tile::size;
        Copy* const rounded = streams_here ? streamed : copy == nullptr ? nullptr : copy + begin;
        for_vectors(here, [&](extent k, int, auto n) __attribute__((always_inline)) {
            const extent j = begin + k;
            f32 w = load_master(master + j, is_split ? copy + j : copy, n);
            f32 d = fma(w, s.decay, apply(reader, load(gradient + j, n)));
            if (momentum != nullptr) {
                // In the first step the old momentum is multiplied by zero: it was set to zero when it was made.
                const f32 m = fma(load(momentum + j, n), s.momentum, d * s.gradient_weight);
                store_stochastic(momentum + j, m, n, for_moment, k);
                d = nesterov != 0.0f ? fma(m, nesterov, d) : m;
            }
            w = fma(d, -s.lr, w);
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
