// SPDX-License-Identifier: MIT
/// \file
/// Gathering along an axis on the CPU; gather.hpp has the contract and an example.
///
/// Between tensors of the same type, rows are copied as bytes by code that does not depend on the type: rows of several
/// elements by number, rows of one element (rows/elements.hpp) without numbers.
#pragma once

#include <cstring>

#include <halftone/exec/cpu/stream.hpp>
#include <halftone/kernel/embedding/cpu.hpp>
#include <halftone/kernel/gather/gather.hpp>
#include <halftone/kernel/gather/rows/elements.hpp>
#include <halftone/kernel/gather/rows/lines.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct gather<cpu> {
    static void row_numbers(cpu& device, const char* operation, const gather_layout& layout,
                            const const_view<std::int32_t, 1>& index, const view<std::int32_t, 1>& numbers) {
        if (layout.rows() == 0) return;
        index_check check(device, layout, index);
        const row_partition partition = partition_rows(layout.rows(), 1);
        device.parallel_for(partition.count, [&](extent piece) {
            for_each_line(layout, partition.begin(piece), partition.rows_of(piece), [&](const gather_line& line) {
                if (!check.takes(line)) return;
                const std::int32_t* const chosen = index.data() + line.index;
                std::int32_t* const to = numbers.data() + line.first;
                for (extent i = 0; i < line.count; ++i)
                    to[i] = static_cast<std::int32_t>(line.row_of(i, chosen[i * line.index_step], layout.along));
            });
        });
        device.run([&] { check.expect_all(operation, index); });
    }

    template <class X, class Y>
    static void forward(cpu& device, const const_view<std::int32_t, 1>& numbers, const view<const X, 2>& table,
                        const view<Y, 2>& out) {
        if (out.size() == 0) return;
        if constexpr (std::is_same_v<X, Y>) {
            copy_rows(device, numbers, reinterpret_cast<const std::byte*>(table.data()),
                      static_cast<std::size_t>(table.extent_of(1)) * sizeof(X),
                      reinterpret_cast<std::byte*>(out.data()));
        } else {
            embedding<cpu>::forward(device, embedding_forward<X, Y>{.tokens = numbers, .table = table, .out = out});
        }
    }

    /// row_numbers and forward in one pass, for rows of one element.
    template <class X>
    static void elements(cpu& device, const char* operation, const gather_layout& layout,
                         const const_view<std::int32_t, 1>& index, const X* table, X* out) {
        copy_elements<sizeof(X)>(device, operation, layout, index, reinterpret_cast<const std::byte*>(table),
                                 reinterpret_cast<std::byte*>(out));
    }

    template <class X, class G>
    static void add(cpu& device, const const_view<std::int32_t, 1>& numbers, const view<const X, 2>& from,
                    const view<G, 2>& table, write_mode mode) {
        if (table.size() == 0) return;
        embedding<cpu>::backward(
            device, embedding_backward<X, G>{.tokens = numbers, .dy = from, .dtable = table, .mode = mode});
    }

  private:
    /// Copies some rows of `row_bytes` each.
    static void copy_rows(cpu& device, const const_view<std::int32_t, 1>& numbers, const std::byte* table,
                          std::size_t row_bytes, std::byte* out) {
        const extent cost = static_cast<extent>(detail::ceil_div(row_bytes, std::size_t{4})), count = numbers.size();
        // Shorter rows fill no cache line, or few of them, so that a copy is no faster past the caches.
        constexpr std::size_t least_bytes = 256;
        const bool non_temporal = row_bytes >= least_bytes && row_bytes % 16 == 0 && detail::is_streamable(out) &&
                                  static_cast<std::size_t>(count) * row_bytes >= detail::non_temporal_threshold;
        const row_partition partition = partition_rows(count, cost, longer_piece(count * cost));
        device.parallel_for(partition.count, [&](extent piece) {
            const extent begin = partition.begin(piece), rows = partition.rows_of(piece);
            const std::int32_t* const some = numbers.data() + begin;
            std::byte* const to = out + static_cast<std::size_t>(begin) * row_bytes;
            if (non_temporal) return stream_rows(some, rows, table, row_bytes, to);
            switch (row_bytes) {
                case 1:
                    return copy_each<1>(some, rows, table, to);
                case 2:
                    return copy_each<2>(some, rows, table, to);
                case 4:
                    return copy_each<4>(some, rows, table, to);
                case 8:
                    return copy_each<8>(some, rows, table, to);
                default:
                    break;
            }
            for (extent r = 0; r < rows; ++r)
                std::memcpy(to + static_cast<std::size_t>(r) * row_bytes,
                            table + static_cast<std::size_t>(some[r]) * row_bytes, row_bytes);
        });
    }
    /// Copies rows by non-temporal stores. The processor does not foresee where a chosen row begins: with each cache line
    /// of a row, the line at the same place of the next one is prefetched, which takes half the time.
    static void stream_rows(const std::int32_t* numbers, extent rows, const std::byte* table, std::size_t row_bytes,
                            std::byte* to) {
        const auto row_at = [&](extent r) { return table + static_cast<std::size_t>(numbers[r]) * row_bytes; };
        constexpr std::size_t line = 64;
        for (extent r = 0; r < rows; ++r, to += row_bytes) {
            const std::byte *const from = row_at(r), *const next = row_at(r + 1 < rows ? r + 1 : r);
            std::size_t i = 0;
            for (; i + line <= row_bytes; i += line) {
                detail::prefetch(next + i, line);
                detail::stream(to + i, from + i, line);
            }
            detail::stream(to + i, from + i, row_bytes - i);
        }
        detail::end_non_temporal();
    }
    /// Copies rows of `Bytes` bytes, each by one load and one store.
    template <std::size_t Bytes>
    static void copy_each(const std::int32_t* numbers, extent rows, const std::byte* table, std::byte* to) {
        for (extent r = 0; r < rows; ++r)
            std::memcpy(to + static_cast<std::size_t>(r) * Bytes, table + static_cast<std::size_t>(numbers[r]) * Bytes,
                        Bytes);
    }
};

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
