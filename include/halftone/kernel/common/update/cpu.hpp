// SPDX-License-Identifier: MIT
/// \file
/// What the CPU's kernels of optimizer steps share (cpu.simd.hpp): reading a gradient with its factors, and storing a
/// result with the rounding of its type.
#pragma once

#include <type_traits>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/exec/cpu/stream.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/common/update/records.hpp>
#include <halftone/memory/gradient_rows.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/number/remainder.hpp>
#include <halftone/number/round_to.hpp>

#define HALFTONE_BODY <halftone/kernel/common/update/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Elements that a thread processes at a time: a multiple of a cache line in every type; four times as many if there
/// are enough for all threads, since long contiguous runs of memory are read faster.
inline constexpr extent update_chunk = 16384;
constexpr extent update_part(extent count) { return count >= 256 * update_chunk ? 4 * update_chunk : update_chunk; }

/// Whether copies of parameters, from the i-th on, are written with non-temporal stores. Rows of a table may not be
/// aligned for these, and halves of split masters are read as well, so that they are not.
template <class Param, class Copy>
bool streams_copies(const view<Copy, 1>& copy, extent i) {
    return !std::is_same_v<Param, bfloat16_remainder> && copy.data() != nullptr &&
           static_cast<std::size_t>(copy.size()) * sizeof(Copy) >= detail::non_temporal_threshold &&
           detail::is_streamable(copy.data() + i);
}

/// Calls update(i, n, gradients) for all parameters: for n of them from the i-th on, with their gradients.
template <class Accumulate, class Update>
void update_all(cpu& device, const const_view<Accumulate, 1>& gradient, const Update& update) {
    const extent count = gradient.size(), run = update_part(count);
    device.parallel_for(detail::ceil_div(count, run), [&](extent chunk) {
        const extent i = chunk * run, n = count - i < run ? count - i : run;
        update(i, n, gradient.data() + i);
    });
}

/// Calls update(i, n, gradients) for only those rows of a table that have a gradient.
template <class Accumulate, class Update>
void update_rows(cpu& device, const gradient_rows<Accumulate>& rows, const Update& update) {
    const extent width = rows.values.extent_of(1);
    const row_partition partition = partition_rows(*rows.count, width, update_chunk);
    device.parallel_for(partition.count, [&](extent piece) {
        for (extent r = partition.begin(piece); r < partition.begin(piece) + partition.rows_of(piece); ++r)
            update(rows.indices(r) * width, width, rows.values.data() + r * width);
    });
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
