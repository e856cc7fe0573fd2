// SPDX-License-Identifier: MIT
/// \file
/// The sparse gradient of an embedding's table: only the rows of tokens that were looked up, each once, in ascending
/// order.
///
///     kernel::embedding_rows<cpu>::add<bfloat16, float>(
///         device, {.tokens = t, .dy = dx, .vocabulary = 50000, .rows = rows});                  // the first micro-batch
///     kernel::embedding_rows<cpu>::add<bfloat16, float>(
///         device, {.tokens = t, .dy = dx, .vocabulary = 50000, .rows = rows, .before = 4096});  // the next one
///
/// Numeric contract: each row has the bits of the dense gradient by kernel::embedding's backward on the same device:
/// the rows of dy of a token are summed in float and added to the result of earlier calls, with one rounding a call.
/// Rows that this call adds nothing to keep their bits. No atomic additions; the host does not wait for the number of
/// rows.
#pragma once

#include <cstdint>
#include <limits>

#include <halftone/kernel/embedding/embedding.hpp>
#include <halftone/memory/gradient_rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The arguments.
template <class Y, class G>
struct embedding_rows_backward {
    const_view<std::int32_t, 1> tokens;  ///< (lookups)
    const_view<Y, 2> dy;                 ///< (lookups, width)
    extent vocabulary = 0;               ///< rows of the table
    gradient_rows<G> rows;               ///< with a capacity of min(vocabulary, before + lookups) rows
    extent before = 0;                   ///< upper bound of the existing rows; 0: none, and *rows.count is not read
    std::int32_t padding = -1;           ///< a token whose lookups add nothing, and get it no row; -1: none
};

/// add(device, arguments). Throws shape_error for arguments that do not fit together, argument_error for a capacity
/// that is too small, and on the CPU for a token outside the vocabulary; devices whose memory the host cannot read drop
/// its gradient.
template <class Device>
struct embedding_rows {
    static_assert(sizeof(Device) == 0,
                  "halftone: embedding_rows: the kernels of this device are not included: include "
                  "<halftone/kernel.hpp> for ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

/// Throws shape_error if the arguments do not fit together, argument_error if the capacity is too small.
template <class Y, class G>
void check(const embedding_rows_backward<Y, G>& a) {
    const extent lookups = a.tokens.extent_of(0), width = a.dy.extent_of(1), room = a.rows.indices.extent_of(0);
    expect("embedding rows", "tokens", a.tokens, a.tokens.shape());
    expect("embedding rows", "dy", a.dy, {lookups, width});
    expect("embedding rows", "indices", a.rows.indices, {room});
    expect("embedding rows", "values", a.rows.values, {room, width});
    if (a.before < 0 || room < (lookups > a.vocabulary - a.before ? a.vocabulary : a.before + lookups)) {
        fail<argument_error>("embedding rows: room for ", room, " rows; expected that of ", a.before, " and ", lookups,
                             " more, of ", a.vocabulary, " in the table");
    }
    constexpr extent most = std::numeric_limits<std::int32_t>::max();
    if (lookups > most) fail<argument_error>("embedding rows: ", lookups, " tokens; expected at most ", most);
}

}  // namespace kernel

/// The gradient of an embedding's table as the rows that were looked up, each once, in ascending order of tokens.
/// tokens: (lookups); dy: (lookups, width), the gradient of the looked-up rows; `rows` has a capacity of
/// min(vocabulary, before + lookups) rows of `width`. `before`: an upper bound of the rows from earlier calls, to which
/// these are added; 0: none. Lookups of the token `padding` count for nothing; -1: none. It takes no policy: sums are in
/// float. Throws shape_error, argument_error for a capacity
/// that is too small, and for a token outside the vocabulary if the host can read the tokens; otherwise that token has
/// no gradient.
template <class Device, class Dy, class G>
    requires(detail::kernel_device<Device> && detail::viewables<Dy>)
void embedding_row_gradients(Device& device, const const_view<std::int32_t, 1>& tokens, const Dy& dy, extent vocabulary,
                             const gradient_rows<G>& rows, extent before = 0, std::int32_t padding = -1) {
    static_assert(detail::check_ranks<2, Dy>());
    kernel::embedding_rows<Device>::add(
        device, kernel::embedding_rows_backward<detail::element_in<Dy>, G>{
                    .tokens = tokens, .dy = as_view(dy), .vocabulary = vocabulary, .rows = rows, .before = before,
                    .padding = padding});
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
