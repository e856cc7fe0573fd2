// SPDX-License-Identifier: MIT
/// \file
/// Gathering along an axis on the CPU; gather.hpp has the contract and an example.
///
/// Between tensors of the same type, rows are copied as bytes by code that does not depend on the type.
#pragma once

#include <cstring>

#include <halftone/kernel/common/fp64/cpu.hpp>
#include <halftone/kernel/embedding/cpu.hpp>
#include <halftone/kernel/gather/gather.hpp>
#include <halftone/kernel/gather/rows/row_numbers.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

template <>
struct gather<cpu> {
    static void row_numbers(cpu& device, const char* operation, const gather_layout& layout,
                            const const_view<std::int32_t, 1>& index, const view<std::int32_t, 1>& numbers) {
        device.run([&] { check_index(operation, layout, index); });
        number_rows(device, layout, index, numbers);
    }

    template <class X, class Y>
    static void forward(cpu& device, const const_view<std::int32_t, 1>& numbers, const view<const X, 2>& table,
                        const view<Y, 2>& out) {
        if (out.size() == 0) return;
        if constexpr (std::is_same_v<X, Y>) {
            copy_rows(device, numbers, reinterpret_cast<const std::byte*>(table.data()),
                      static_cast<std::size_t>(table.extent_of(1)) * sizeof(X), reinterpret_cast<std::byte*>(out.data()));
        } else {
            embedding<cpu>::forward(device, embedding_forward<X, Y>{.tokens = numbers, .table = table, .out = out});
        }
    }

    template <class X, class G>
    static void add(cpu& device, const const_view<std::int32_t, 1>& numbers, const view<const X, 2>& from,
                    const view<G, 2>& table, write_mode mode) {
        if (table.size() == 0) return;
        embedding<cpu>::backward(
            device, embedding_backward<X, G>{.tokens = numbers, .dy = from, .dtable = table, .mode = mode});
    }

  private:
    static void check_index(const char* operation, const gather_layout& layout,
                            const const_view<std::int32_t, 1>& index) {
        if (layout.rows() == 0) return;
        for (extent i = 0; i < index.size(); ++i) {
            if (index(i) < 0 || index(i) >= layout.choices)
                fail<argument_error>(operation, ": index ", i, " is ", index(i), "; expected 0 to ", layout.choices - 1);
        }
    }

    static void copy_rows(cpu& device, const const_view<std::int32_t, 1>& numbers, const std::byte* table,
                          std::size_t row_bytes, std::byte* out) {
        const row_partition partition = partition_rows(numbers.size(), static_cast<extent>(row_bytes + 3) / 4);
        device.parallel_for(partition.count, [&](extent piece) {
            const extent begin = partition.begin(piece), rows = partition.rows_of(piece);
            const std::int32_t* const some = numbers.data() + begin;
            std::byte* const to = out + static_cast<std::size_t>(begin) * row_bytes;
            switch (row_bytes) {
                case 1: return copy_each<1>(some, rows, table, to);
                case 2: return copy_each<2>(some, rows, table, to);
                case 4: return copy_each<4>(some, rows, table, to);
                case 8: return copy_each<8>(some, rows, table, to);
                default: break;
            }
            for (extent r = 0; r < rows; ++r)
                std::memcpy(to + static_cast<std::size_t>(r) * row_bytes,
                            table + static_cast<std::size_t>(some[r]) * row_bytes, row_bytes);
        });
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
