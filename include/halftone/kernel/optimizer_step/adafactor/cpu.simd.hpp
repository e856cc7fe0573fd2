// SPDX-License-Identifier: MIT
/// \file
/// Adafactor's sums over a tile of a parameter.
// No include guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/common/update/cpu.hpp>
#include <halftone/kernel/optimizer_step/adafactor/adafactor.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// The sums of squares of each row and each column of a tile of gradients with row stride `stride`. Four rows at a time
/// are added before the result is added to the sums of the columns.
template <class G>
void adafactor_squares(extent rows, extent width, const G* g, extent stride, const kernel::gradient_factors& factors,
                       float* of_rows, float* of_columns) {
    const gradient_reader reader = reader_of(factors);
    fill(of_columns, width, 0.0f);
    const auto square = [&](const G* p, auto n) __attribute__((always_inline)) {
        const f32 v = apply(reader, load(p, n));
        return v * v;
    };
    extent i = 0;
    for (; i + 4 <= rows; i += 4, g += 4 * stride) {
        four_vectors sums = broadcast_four(0.0f);
        for_vectors(width, [&](extent j, int, auto n) __attribute__((always_inline)) {
            f32 of[4];
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) of[k] = square(g + k * stride + j, n), sums.v[k] = sums.v[k] + of[k];
            store(of_columns + j, load(of_columns + j, n) + ((of[0] + of[1]) + (of[2] + of[3])), n);
        });
        for (int k = 0; k < 4; ++k) of_rows[i + k] = sum(sums.v[k]);
    }
    for (; i < rows; ++i, g += stride) {
        f32 of_row = splat(0.0f);
        for_vectors(width, [&](extent j, int, auto n) __attribute__((always_inline)) {
            const f32 one = square(g + j, n);
            of_row = of_row + one;
            store(of_columns + j, load(of_columns + j, n) + one, n);
        });
        of_rows[i] = sum(of_row);
    }
}

/// The sums of squares of updates, gradient / sqrt(variance), and of parameters, along a part of a row, in float.
template <class Param, class Copy, class G>
void adafactor_measure(const kernel::optimizer_step_arguments<kernel::adafactor_rule, Param, Copy, G, float>& a,
                       const kernel::step_run<G>& run, const float* columns, float row, float* of_updates,
                       float* of_parameters) {
    const gradient_reader reader = reader_of(*a.factors);
    const Param* const master = run.of(a.master);
    const Copy* const copy = run.of(a.copy);
    const G* const g = run.gradient;
    four_vectors updates = broadcast_four(0.0f), parameters = broadcast_four(0.0f);
    const f32 share = splat(row), floor = splat(a.rule.least_variance());
    for_vectors_unrolled(
        run.count, [&](extent j, int k, auto n) __attribute__((always_inline)) {
            const f32 v = apply(reader, load(g + j, n)),
                      w = load_master(master + j, copy == nullptr ? copy : copy + j, n);
            const f32 variance = adafactor_variance<f32>(share, load(columns + j, n), floor);
            updates.v[k] = updates.v[k] + v * v / variance;
            parameters.v[k] = fma(w, w, parameters.v[k]);
        });
    *of_updates = sum(updates), *of_parameters = sum(parameters);
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
