// SPDX-License-Identifier: MIT
/// \file
/// The gradient of an embedding's table as rows: only those of tokens that were looked up, each once, in ascending
/// order.
///
///     kernel::embedding_rows<cpu>::add<bfloat16, float>(
///         device, {.tokens = t, .dy = dx, .vocabulary = 50000, .rows = rows});                  // of one micro-batch
///     kernel::embedding_rows<cpu>::add<bfloat16, float>(
///         device, {.tokens = t, .dy = dx, .vocabulary = 50000, .rows = rows, .before = 4096});  // and of the next one
///
/// Numeric contract: row by row the bits that kernel::embedding's backward leaves in a dense gradient on the same
/// device: the rows of dy of a token are summed in float and added to what earlier calls left, with one rounding a
/// call. Rows that are no sum of this call keep their bits. No atomic additions, no wait for the number of rows.
#pragma once

#include <cstdint>
#include <limits>

#include <halftone/kernel/embedding/embedding.hpp>
#include <halftone/memory/gradient_rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// What the gradient is made of, and where it goes.
template <class Y, class G>
struct embedding_rows_backward {
    const_view<std::int32_t, 1> tokens;  ///< (lookups)
    const_view<Y, 2> dy;                 ///< (lookups, width)
    extent vocabulary = 0;               ///< rows of the table
    gradient_rows<G> rows;               ///< room for min(vocabulary, before + lookups) rows
    extent before = 0;                   ///< rows that are there, at most; 0: none, whatever *rows.count says
};

/// add(device, arguments). Throws shape_error for arguments that do not fit together, argument_error for too little
/// room, and on the CPU for a token outside the vocabulary; devices whose memory the host does not read drop its
/// gradient.
template <class Device>
struct embedding_rows {
    static_assert(sizeof(Device) == 0,
                  "halftone: embedding_rows: the kernels of this device are not included: include "
                  "<halftone/kernel.hpp> for ht::cpu, <halftone/cuda.cuh> for ht::cuda");
};

/// Throws shape_error where the arguments do not fit together, argument_error for too little room.
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

/// The gradient of an embedding's table as the rows that were looked up, each once, in ascending order of the tokens. tokens:
/// (lookups); dy: (lookups, width), the gradient of the rows that were looked up; `rows` has room for min(vocabulary, before
/// + lookups) rows of width. `before`: at most how many rows earlier calls left, to which these are added; 0: none. It takes
/// no policy: sums are in float. Throws shape_error, argument_error for too little room, and where the host can read the
/// tokens for one outside the vocabulary; elsewhere it has no gradient.
template <class Device, class Dy, class G>
    requires(detail::kernel_device<Device> && detail::viewables<Dy>)
void embedding_row_gradients(Device& device, const const_view<std::int32_t, 1>& tokens, const Dy& dy, extent vocabulary,
                             const gradient_rows<G>& rows, extent before = 0) {
    static_assert(detail::check_ranks<2, Dy>());
    kernel::embedding_rows<Device>::add(
        device, kernel::embedding_rows_backward<detail::element_in<Dy>, G>{
                    .tokens = tokens, .dy = as_view(dy), .vocabulary = vocabulary, .rows = rows, .before = before});
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
