// SPDX-License-Identifier: MIT
/// \file
/// For each row of a result the number of its row in the table, one thread per row; gather.hpp has the rules.
#pragma once

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/gather/gather.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// numbers[i], or -1 for an index outside the axis.
struct row_number {
    gather_layout layout;
    simt::global_span<const std::int32_t> index;
    simt::global_span<std::int32_t> numbers;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        extent rest = i, at = 0, row = 0;
        // The loop is unrolled over the largest possible number of axes, because registers of a GPU cannot be indexed.
        HALFTONE_UNROLL for (int a = gather_layout::most_rank - 1; a >= 0; --a) {
            if (a >= layout.rank) continue;
            const extent place = rest % layout.places[a];
            rest /= layout.places[a];
            at += place * layout.index_strides[a];
            row += place * layout.row_strides[a];
        }
        const std::int32_t chosen = thread.load(index, at);
        const bool is_there = chosen >= 0 && chosen < layout.choices;
        thread.store(numbers, i, is_there ? static_cast<std::int32_t>(row + chosen * layout.along) : -1);
    }
};

/// Chooses integers: out[r] = table[numbers[r]], or -1 if there is no such row.
struct chosen_integer {
    simt::global_span<const std::int32_t> numbers, table;
    simt::global_span<std::int32_t> out;
    extent width;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const extent row = thread.load(numbers, i / width);
        thread.store(out, i, row < 0 ? -1 : thread.load(table, row * width + i % width));
    }
};

template <class Device>
void number_rows(Device& device, const gather_layout& layout, const const_view<std::int32_t, 1>& index,
                 const view<std::int32_t, 1>& numbers) {
    if (numbers.size() == 0) return;
    fp64::for_each(device, numbers.size(), 4, row_number{layout, simt::span_of(index), simt::span_of(numbers)});
}

}  // namespace kernel
}  // namespace HALFTONE_ABI
}  // namespace halftone
