// SPDX-License-Identifier: MIT
/// \file
/// Gathers the columns of a panel as the multiply-add unit reads it, (k, fma_columns) floats, straight from images of any
/// element type (panel_columns.hpp).
// A body without a guard: exec/cpu/each_set.hpp includes it once for each instruction set.

#include <halftone/exec/cpu/simd.hpp>
#include <halftone/kernel/conv2d/implicit/panel_columns.hpp>
#include <halftone/kernel/matmul/cpu/unit/fma_packing.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace HALFTONE_SET {

/// Writes n values, n of at most two vectors, to each of `rows` rows; values(row, first, n) loads some of a row.
template <class Values>
HALFTONE_INLINE void write_rows(extent rows, float* to, extent to_step, extent n, const Values& values) {
    constexpr int lanes = f32::lanes;
    if (n <= lanes) {
        const int some = static_cast<int>(n);
        for (extent r = 0; r < rows; ++r, to += to_step) store(to, values(r, 0, some), some);
    } else {
        const int some = static_cast<int>(n) - lanes;
        for (extent r = 0; r < rows; ++r, to += to_step) {
            store(to, values(r, 0, lanes));
            store(to + lanes, values(r, lanes, some), some);
        }
    }
}

/// Rows [k, k + count) of a panel, rounded to Compute where that holds less than T.
template <class Compute, class T>
void gather_panel(const kernel::implicit_cpu::panel_columns& columns, const void* images, extent first_channel, extent k,
                  extent count, float* to) {
    kernel::implicit_cpu::panel_columns::walk runs(columns, first_channel, k, count);
    while (runs.next()) {
        const auto& run = *runs;
        const auto* const from = static_cast<const T*>(images) + run.from;
        float* const first = to + run.to;
        if (run.is_padding) {
            write_rows(run.channels, first, run.to_step, run.count, [](extent, int, int) { return splat(0.0f); });
        } else if (run.step == 1) {
            write_rows(run.channels, first, run.to_step, run.count, [&](extent row, int begin, int n) {
                return load_as<Compute>(from + row * run.from_step + begin, n);
            });
        } else {
            write_rows(run.channels, first, run.to_step, run.count, [&](extent row, int begin, int n) {
                T some[f32::lanes];
                for (int i = 0; i < n; ++i) some[i] = from[row * run.from_step + (begin + i) * run.step];
                return load_as<Compute>(some, n);
            });
        }
    }
}

}  // namespace HALFTONE_SET
}  // namespace HALFTONE_ABI
}  // namespace halftone
