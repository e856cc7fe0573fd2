// SPDX-License-Identifier: MIT
/// \file
/// Gathering of single elements on the CPU in one pass over the index, which checks a block of indices and then copies
/// their elements.
///
///     copy_elements<sizeof(float)>(device, "gather", layout, index, table, out);
#pragma once

#include <cstring>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/exec/cpu/stream.hpp>
#include <halftone/kernel/common/rows/partition.hpp>
#include <halftone/kernel/gather/rows/lines.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// Whether the index chooses so many of a line's `choices` elements of the table that most of its cache lines are read, and
/// two lines stay in the second-level cache.
template <std::size_t Bytes>
bool prefetches_next_line(const gather_layout& layout) {
    const int last = line_axis(layout);
    const std::size_t bytes = static_cast<std::size_t>(layout.choices) * Bytes;
    return layout.along == 1 && layout.row_strides[last] == 0 &&
           static_cast<std::size_t>(layout.places[last]) * 64 >= bytes && bytes <= std::size_t{256} << 10;
}

/// Copies the elements of a line, of `Bytes` bytes each, whose indices are inside the axis. Loads at random places wait for
/// each cache line that they find first; if `next` is not null, as many bytes from there on are prefetched meanwhile.
template <std::size_t Bytes>
void copy_line(const gather_line& line, const std::int32_t* index, extent along, const std::byte* table,
               const std::byte* next, std::byte* to) {
    const std::int32_t* const chosen = index + line.index;
    const auto copy = [&](extent i, extent row) __attribute__((always_inline)) {
        std::memcpy(to + static_cast<std::size_t>(i) * Bytes, table + static_cast<std::size_t>(row) * Bytes, Bytes);
    };
    if (line.index_step != 1 || line.row_step != 0 || along != 1) {
        for (extent i = 0; i < line.count; ++i) copy(i, line.row_of(i, chosen[i * line.index_step], along));
        return;
    }
    table += static_cast<std::size_t>(line.row) * Bytes;
    // Unsigned, since a load extends such an index for nothing.
    const auto copy_one = [&](extent i) __attribute__((always_inline)) {
        copy(i, static_cast<extent>(static_cast<std::uint32_t>(chosen[i])));
    };
    const auto copy_four = [&](extent i) __attribute__((always_inline)) {
        copy_one(i), copy_one(i + 1), copy_one(i + 2), copy_one(i + 3);
    };
    // The index is prefetched 8 KiB ahead: processors' own prefetches are not in time, because it is read in bursts.
    constexpr extent step = 64 / Bytes, ahead = 2048;
    for (extent first = 0; first < line.count; first += step) {
        const extent end = first + step < line.count ? first + step : line.count;
        if (next != nullptr) detail::prefetch(next + static_cast<std::size_t>(first) * Bytes, 64);
        detail::prefetch(chosen + first + ahead, step * sizeof(std::int32_t));
        // Eight by one branch, since a processor takes one branch a cycle.
        extent i = first;
        for (; i + 8 <= end; i += 8) copy_four(i), copy_four(i + 4);
        for (; i < end; ++i) copy_one(i);
    }
}

/// out[r] = the table's element for row r of a layout of width 1. Throws argument_error for the first index outside the
/// axis; other elements may have been written then.
template <std::size_t Bytes>
void copy_elements(cpu& device, const char* operation, const gather_layout& layout,
                   const const_view<std::int32_t, 1>& index, const std::byte* table, std::byte* out) {
    // Non-temporal stores have 16 bytes, so that they store blocks of elements that were collected in the first-level cache.
    constexpr extent block = 1024;
    const extent rows = layout.rows();
    if (rows == 0) return;
    const bool non_temporal =
        static_cast<std::size_t>(rows) * Bytes >= detail::non_temporal_threshold && detail::is_streamable(out);
    const bool prefetches = prefetches_next_line<Bytes>(layout);
    index_check check(device, layout, index);
    const auto copy_block = [&](extent first, extent count, std::byte* to) {
        bool all = true;
        for_each_line(layout, first, count, [&](const gather_line& line) {
            if (!check.takes(line)) return void(all = false);
            const std::byte* const next =
                prefetches ? table + static_cast<std::size_t>(line.row + layout.choices + line.place) * Bytes : nullptr;
            copy_line<Bytes>(line, index.data(), layout.along, table, next,
                             to + static_cast<std::size_t>(line.first - first) * Bytes);
        });
        return all;
    };
    // Where lines are not prefetched, each load may wait for memory.
    const row_partition partition = partition_rows(rows, prefetches ? 1 : 4, longer_piece(rows));
    device.parallel_for(partition.count, [&](extent piece) {
        const extent end = partition.begin(piece) + partition.rows_of(piece);
        for (extent first = partition.begin(piece); first < end; first += block) {
            const extent count = block < end - first ? block : end - first;
            std::byte* const to = out + static_cast<std::size_t>(first) * Bytes;
            const std::size_t bytes = static_cast<std::size_t>(count) * Bytes, whole = bytes / 16 * 16;
            if (non_temporal) {
                alignas(64) std::byte collected[block * Bytes];
                if (!copy_block(first, count, collected)) continue;
                detail::stream(to, collected, whole);
                std::memcpy(to + whole, collected + whole, bytes - whole);
            } else {
                copy_block(first, count, to);
            }
        }
        if (non_temporal) detail::end_non_temporal();
    });
    device.run([&] { check.expect_all(operation, index); });
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
