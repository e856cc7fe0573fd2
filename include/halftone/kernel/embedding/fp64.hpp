// SPDX-License-Identifier: MIT
/// \file
/// Embedding in double, one thread an element: embedding.hpp has the rules, common/fp64/each.hpp the contract. The
/// thread of an element of a table's gradient reads all tokens in order: that needs no sort, but is only for small
/// vocabularies.
#pragma once

#include <halftone/kernel/common/fp64/each.hpp>
#include <halftone/kernel/embedding/embedding.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel::fp64 {

template <class T, class Y>
struct embedding_element {
    global_span<const std::int32_t> tokens;
    rows_of<const T> table, positions;
    rows_of<Y> out;
    extent vocabulary, width, period;             // period 0: no positions
    global_span<const std::int32_t> position_of;  // or empty

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const extent row = i / width, j = i % width;
        const std::int32_t token = thread.load(tokens, row);
        double sum = not_a_number;
        if (token >= 0 && token < vocabulary) sum = table.load(thread, token, j);
        if (period != 0) {
            const extent position = position_of.is_there() ? thread.load(position_of, row) : row % period;
            sum += position >= 0 && position < period ? positions.load(thread, position, j) : not_a_number;
        }
        out.store(thread, row, j, sum);
    }
};

/// Sums the rows of dy that belong to row `i / width` of the gradient: those of a token, or of a position.
template <class Y, class G>
struct embedding_backward_element {
    global_span<const std::int32_t> tokens;
    rows_of<const Y> dy;
    rows_of<G> to;
    extent rows, width, period;  // period 0: by token
    write_mode mode;

    HALFTONE_KERNEL template <class Thread>
    HALFTONE_HD void operator()(Thread thread, extent i) const {
        const extent owner = i / width, j = i % width;
        double sum = 0;
        if (period == 0) {
            for (extent row = 0; row < rows; ++row)
                if (thread.load(tokens, row) == owner) sum += dy.load(thread, row, j);
        } else {
            for (extent row = owner; row < rows; row += period) sum += dy.load(thread, row, j);
        }
        to.store(thread, owner, j, sum, mode);
    }
};

template <class Device, class T, class Y>
void embed(Device& device, const embedding_forward<T, Y>& a) {
    check(a);
    const extent rows = a.tokens.extent_of(0), width = a.table.extent_of(1);
    const bool has_positions = a.positions.data() != nullptr;
    for_each(device, rows * width, 3,
             embedding_element<T, Y>{simt::span_of(a.tokens), rows_of<const T>(a.table), rows_of<const T>(a.positions),
                                     rows_of<Y>(a.out), a.table.extent_of(0), width,
                                     has_positions ? a.positions.extent_of(0) : 0, simt::span_of(a.position_of)});
}

template <class Device, class Y, class G>
void embed(Device& device, const embedding_backward<Y, G>& a) {
    check(a);
    const extent rows = a.tokens.extent_of(0), width = a.dy.extent_of(1);
    const auto add_up = [&](const view<G, 2>& to, extent period) {
        if (to.data() == nullptr) return;
        for_each(device, to.extent_of(0) * width, 2 * rows,
                 embedding_backward_element<Y, G>{simt::span_of(a.tokens), rows_of<const Y>(a.dy), rows_of<G>(to), rows,
                                                  width, period, a.mode});
    };
    add_up(a.dtable, 0);
    if (a.dpositions.extent_of(0) != 0) add_up(a.dpositions, a.dpositions.extent_of(0));
}

}  // namespace kernel::fp64
}  // namespace HALFTONE_ABI
}  // namespace halftone
