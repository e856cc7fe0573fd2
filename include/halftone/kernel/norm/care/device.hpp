// SPDX-License-Identifier: MIT
/// \file
/// How a team of threads on a GPU normalises a row with care (limits.hpp): in double, element by element, since such
/// rows are rare.
///
///     const double sum = careful_sum<Threads>(simt, me, width, [&](extent j) { return static_cast<double>(simt.load(row, j)); });
#pragma once

#include <halftone/exec/simt/reduce.hpp>
#include <halftone/kernel/norm/care/limits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::on_device {

/// Shared memory for it, from the first byte on: everything else in it is no longer needed then.
template <int Threads>
inline constexpr int careful_bytes = Threads == 32 ? 0 : Threads / 32 * static_cast<int>(sizeof(double));

/// The sum of term(j) over a row; the result has the same bits in every thread of the team.
HALFTONE_KERNEL template <int Threads, class Simt, class Term>
HALFTONE_HD HALFTONE_INLINE double careful_sum(Simt simt, int me, extent width, const Term& term) {
    double mine = 0;
    for (extent j = me; j < width; j += Threads) mine += term(j);
    return simt::block_sum<Threads>(simt, mine, simt::shared_span<double>{0, Threads / 32});
}

/// Standardises a row's elements: (x - mean) rstd, in halves if differences might overflow float; otherwise the first
/// factor is 1, which changes nothing.
struct standard_row {
    float part, average, scale;

    HALFTONE_HD HALFTONE_INLINE standard_row(float mean, float rstd)
        : part(rstd < least_rstd ? 0.5f : 1.0f), average(mean * part), scale(rstd < least_rstd ? 2 * rstd : rstd) {}
    HALFTONE_HD HALFTONE_INLINE float operator()(float v) const { return (v * part - average) * scale; }
};

}  // namespace kernel::on_device
}  // namespace HALFTONE_ABI
}  // namespace halftone
