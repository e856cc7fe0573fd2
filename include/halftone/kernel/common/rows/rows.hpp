// SPDX-License-Identifier: MIT
/// \file
/// What row-wise CPU kernels share: the partition of rows into pieces (partition.hpp), iterating over a row and summing
/// it (walk.hpp), processing four short rows at a time (side_by_side.simd.hpp), strided rows (strided.hpp), and sums
/// over pieces.
#pragma once

#include <algorithm>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/exec/cpu/simd.hpp>
#include <halftone/exec/cpu/stream.hpp>
#include <halftone/kernel/common/rows/partition.hpp>
#include <halftone/kernel/common/rows/strided.hpp>
#include <halftone/kernel/common/rows/walk.hpp>
#include <halftone/kernel/write_mode.hpp>
#include <halftone/number/integer.hpp>
#include <halftone/tensor/view.hpp>

#define HALFTONE_BODY <halftone/kernel/common/rows/side_by_side.simd.hpp>
#include <halftone/exec/cpu/each_set.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The largest number of rows in flight in kernels that pipeline rows (side_by_side.simd.hpp).
constexpr extent held_rows(extent width) { return width <= 256 ? 8 : width <= 2048 ? 2 : 1; }

/// Whether rows of `row_bytes`, at one distance from each other, are written with non-temporal stores: if the array is
/// large and the rows are aligned to cache lines.
inline bool stores_non_temporal(const void* to, extent rows, extent row_bytes, extent row_stride_bytes) {
    return static_cast<std::size_t>(rows * row_bytes) >= detail::non_temporal_threshold &&
           reinterpret_cast<std::uintptr_t>(to) % 64 == 0 && (rows == 1 || row_stride_bytes % 64 == 0);
}

/// Whether contiguous or strided rows are written with non-temporal stores: large ones, aligned to cache lines, that
/// are not also an input.
template <class T, class Input>
bool stores_non_temporal(const view<T, 2>& to, const Input* input) {
    constexpr auto bytes = static_cast<extent>(sizeof(T));
    return static_cast<const void*>(to.data()) != input &&
           stores_non_temporal(to.data(), to.extent_of(0), to.extent_of(1) * bytes, to.stride_of(0) * bytes);
}

/// out[j] = (or +=) the sum over pieces of partials[piece * stride + j], for j in [0, width).
template <class G>
void add_partials(cpu& device, extent pieces, const float* partials, extent stride, extent width, G* out,
                  write_mode mode) {
    const auto body = device.select(HALFTONE_EACH_SET(add_partials<G>));
    constexpr extent columns = 512;
    device.parallel_for(detail::ceil_div(width, columns), [&](extent block) {
        const extent first = block * columns;
        body(pieces, partials + first, stride, first + columns < width ? columns : width - first, out + first, mode);
    });
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
