// SPDX-License-Identifier: MIT
/// \file
/// What the CPU's kernels of an optimizer's step share (cpu.simd.hpp): reading a gradient with its factors, storing a result
/// with the rounding of its type.
#pragma once

#include <type_traits>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/exec/cpu/stream.hpp>
#include <halftone/kernel/common/rows/rows.hpp>
#include <halftone/kernel/common/update/records.hpp>
#include <halftone/memory/gradient_rows.hpp>
#include <halftone/number/philox.hpp>
#include <halftone/number/remainder.hpp>
#include <halftone/number/round_to.hpp>

#define HALFTONE_BODY <halftone/kernel/common/update/cpu.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Elements that one thread takes at a time: a multiple of a cache line in every type, and four times as many where
/// there are enough for all, since memory is read faster in longer runs.
inline constexpr extent update_chunk = 16384;
constexpr extent update_part(extent count) { return count >= 256 * update_chunk ? 4 * update_chunk : update_chunk; }

/// Whether the copies of so many parameters are written past the caches, from the i-th on: rows of a table may begin
/// where that cannot be. Halves of split masters are read as well.
template <class Param, class Copy>
bool streams_copies(const view<Copy, 1>& copy, extent i) {
    return !std::is_same_v<Param, bfloat16_remainder> && copy.data() != nullptr &&
           static_cast<std::size_t>(copy.size()) * sizeof(Copy) >= detail::non_temporal_threshold &&
           detail::is_streamable(copy.data() + i);
}

/// update(i, n, gradients) for all parameters: n from the i-th on, with their gradients.
template <class Accumulate, class Update>
void update_all(cpu& device, const const_view<Accumulate, 1>& gradient, const Update& update) {
    const extent count = gradient.size(), run = update_part(count);
    device.parallel_for((count + run - 1) / run, [&](extent chunk) {
        const extent i = chunk * run, n = count - i < run ? count - i : run;
        update(i, n, gradient.data() + i);
    });
}

/// The same for the rows of a table that have a gradient.
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
