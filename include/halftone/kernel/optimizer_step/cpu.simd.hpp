// SPDX-License-Identifier: MIT
/// \file
/// An optimizer's step for a run of its elements, whose moments are at `moments`. Keeps: whether the rule stores moments,
/// known at compile time.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/optimizer_step/optimizer_step.hpp>
#include <halftone/kernel/optimizer_step/rule/all.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

template <class Rule, bool Keeps, rounding Rounding, rounding CopyRounding, class Param, class Copy, class Accumulate,
          class State>
void optimizer_step_elements(const kernel::optimizer_step_arguments<Rule, Param, Copy, Accumulate, State>& a,
                             const kernel::step_run<Accumulate>& run, State* const* moments,
                             const typename Rule::scalars& s, bool stores_non_temporal) {
    Param* const master = run.of(a.master);
    Copy* const copy = run.of(a.copy);
    float* const average = run.of(a.average);
    const Accumulate* const gradient = run.gradient;
    const float average_weight = kernel::average_weight_of(a.average_decay, *a.step);
    const kernel::rounding_key key = a.key;
    const auto step = static_cast<std::uint32_t>(a.step->steps);
    const extent count = run.count, index = run.first;
    constexpr bool writes_moments = !kernel::only_reads_moments<Rule>;
    constexpr bool random_moments = writes_moments && !std::is_same_v<State, float>;
    constexpr bool is_split = std::is_same_v<Param, bfloat16_remainder>;
    constexpr bool random_master = Rounding == rounding::stochastic && !std::is_same_v<Param, float> && !is_split;
    constexpr int kinds = Keeps ? Rule::moments : 0, most_kinds = Rule::moments;
    State* moment[most_kinds];
    for (int k = 0; k < kinds; ++k) moment[k] = moments[k];
    const gradient_reader reader = reader_of(*a.factors);
    random_tile for_master, for_moment[most_kinds];
    alignas(64) Copy streamed[random_tile::size];
    for (extent begin = 0; begin < count; begin += random_tile::size) {
        if constexpr (random_master) fill(for_master, key, 0, step, index + begin);
        if constexpr (random_moments) {
#pragma GCC unroll 4
            for (int k = 0; k < kinds; ++k) fill(for_moment[k], key, static_cast<std::uint32_t>(1 + k), step, index + begin);
        }
        const extent here = count - begin < random_tile::size ? count - begin : random_tile::size;
        prefetch_tile(gradient + begin);
        for (int k = 0; k < kinds; ++k) prefetch_tile(moment[k] + begin);
        prefetch_tile(master + begin);
        if constexpr (is_split) prefetch_tile(copy + begin);
        if (average != nullptr) prefetch_tile(average + begin);
        const bool stores_non_temporal_here = stores_non_temporal && here == random_tile::size;
        Copy* const rounded = stores_non_temporal_here ? streamed : copy == nullptr ? nullptr : copy + begin;
        for_vectors(here, [&](extent i, int, auto n) __attribute__((always_inline)) {
            const extent j = begin + i;
            const f32 g = apply(reader, load(gradient + j, n));
            f32 m[most_kinds];
#pragma GCC unroll 4
            for (int k = 0; k < kinds; ++k) m[k] = load(moment[k] + j, n);
            const f32 w = updated(s, load_master(master + j, is_split ? copy + j : copy, n), g, m, Keeps);
            if constexpr (writes_moments) {
#pragma GCC unroll 4
                for (int k = 0; k < kinds; ++k) store_stochastic(moment[k] + j, m[k], n, for_moment[k], i);
            }
            if constexpr (is_split) {
                store_halves(master + j, copy + j, w, n);
            } else if constexpr (random_master) {
                store_stochastic(master + j, w, n, for_master, i);
            } else {
                store(master + j, w, n);
            }
            f32 stored = w;
            if constexpr (!is_split) {
                if constexpr (!std::is_same_v<Param, float>) stored = load(master + j, n);
                if (copy != nullptr) store_copy<CopyRounding>(rounded + i, stored, n);
            }
            if (average != nullptr) {
                const f32 mean = load(average + j, n);
                store(average + j, fma(stored - mean, average_weight, mean), n);
            }
        });
        if (stores_non_temporal_here) stream(copy + begin, streamed, sizeof streamed);
    }
    if (stores_non_temporal) end_non_temporal();
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
