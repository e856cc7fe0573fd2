// SPDX-License-Identifier: MIT
/// \file
/// Embedding: row r of the result is the table's row for token r, plus, if there is a table of positions, that table's
/// row r modulo the number of positions, or the row named by position_of[r].
///
///     ht::embedding<ht::amp_bf16>(device, tokens, wte, wpe, x);
///     ht::embedding_gradients<ht::amp_bf16>(device, tokens, dx, dwte, dwpe);
///
///     kernel::embedding<cpu>::forward<float, bfloat16>(                                 // which both call
///         device, {.tokens = t, .table = wte, .positions = wpe, .out = x});              // wpe: (time, width)
///     kernel::embedding<cpu>::backward<bfloat16, float>(
///         device, {.tokens = t, .dy = dx, .dtable = dwte, .dpositions = dwpe, .mode = ht::write_mode::add});
///
/// Numeric contract: the sum of both rows in float, rounded once. A row of a gradient is the sum of its rows of dy in
/// float, in an order that depends on the tokens alone (on the CPU: the order of rows), rounded once: the same bits for
/// any number of threads, without atomic additions.
#pragma once

#include <cstdint>

#include <halftone/kernel/expect.hpp>
#include <halftone/kernel/function.hpp>
#include <halftone/kernel/overlap.hpp>
#include <halftone/kernel/write_mode.hpp>
#include <halftone/memory/square_sum.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace kernel {

/// The arguments of the forward pass.
template <class T, class Y>
struct embedding_forward {
    const_view<std::int32_t, 1>
        tokens;                    ///< (rows), 0 to vocabulary - 1; the sequences of a batch, each of `period` rows
    const_view<T, 2> table;        ///< (vocabulary, width)
    const_view<T, 2> positions{};  ///< (period, width), or without data
    view<Y, 2> out;                ///< (rows, width)
    const_view<std::int32_t, 1> position_of{};  ///< (rows), 0 to period - 1, or without data
};

/// The arguments of the backward pass.
template <class Y, class G>
struct embedding_backward {
    const_view<std::int32_t, 1> tokens;  ///< (rows)
    const_view<Y, 2> dy;                 ///< (rows, width)
    view<G, 2> dtable{};                 ///< (vocabulary, width), or without data: frozen. Overwritten: 0 for absent tokens
    view<G, 2> dpositions{};             ///< (period, width), or without data
    write_mode mode = write_mode::add;
    square_sum squares_before{};    ///< of dtable before an addition, if known
    square_sum* squares = nullptr;  ///< of dtable afterwards, written by devices that can compute it
};

/// Members: forward and backward. Both throw shape_error. On the CPU they throw argument_error for a token outside the
/// vocabulary, and check_tokens(vocabulary, tokens) is a member, too. On devices whose memory the host cannot read,
/// such a token gives a row of NaN and its gradient is dropped. The same holds for position_of, whose gradient is
/// computed as that of a table with position_of as its tokens.
template <class Device>
struct embedding;

/// Throws shape_error if the arguments do not fit together.
template <class T, class Y>
void check(const embedding_forward<T, Y>& a) {
    const extent width = a.table.extent_of(1);
    expect("embedding", "tokens", a.tokens, a.tokens.shape());
    expect("embedding", "table", a.table, a.table.shape());
    expect_optional("embedding", "positions", a.positions, {a.positions.extent_of(0), width});
    if (a.positions.data() != nullptr && a.positions.extent_of(0) == 0 && a.tokens.size() != 0)
        fail<shape_error>("embedding: positions is ", a.positions.shape(), "; expected one row at least");
    expect("embedding", "out", a.out, {a.tokens.extent_of(0), width});
    expect_optional("embedding", "position_of", a.position_of, {a.tokens.extent_of(0)});
}

/// Throws shape_error if the arguments do not fit together.
template <class Y, class G>
void check(const embedding_backward<Y, G>& a) {
    const extent width = a.dy.extent_of(1);
    expect("embedding backward", "tokens", a.tokens, a.tokens.shape());
    expect("embedding backward", "dy", a.dy, {a.tokens.extent_of(0), width});
    expect_optional("embedding backward", "dtable", a.dtable, {a.dtable.extent_of(0), width});
    expect_optional("embedding backward", "dpositions", a.dpositions, {a.dpositions.extent_of(0), width});
}

}  // namespace kernel

/// out[r] = table[tokens[r]] + positions[r mod period]. tokens: (rows) of std::int32_t, one sequence after the other,
/// each of `period` rows; table: (vocabulary, width); positions: (period, width), of the table's type, may be without
/// data; out: (rows, width). With position_of, (rows), row r adds positions[position_of[r]] instead. Throws
/// shape_error, and argument_error for a token outside the vocabulary if the host can read the tokens; otherwise its
/// row is NaN.
template <class P, class Device, class Table, class Positions, class Out>
    requires(detail::kernel_device<Device> && detail::viewables<Table, Positions, Out>)
void embedding(Device& device, const const_view<std::int32_t, 1>& tokens, const Table& table,
               const Positions& positions, const Out& out, const const_view<std::int32_t, 1>& position_of = {}) {
    using arguments = kernel::embedding_forward<detail::element_in<Table>, detail::element_in<Out>>;
    static_assert(detail::check_function<P, detail::element_in<Table>, detail::element_in<Out>>());
    static_assert(detail::check_ranks<2, Table, Positions, Out>());
    detail::expect_apart(device, "embedding", "table", table, "out", out);
    detail::expect_apart(device, "embedding", "positions", positions, "out", out);
    kernel::embedding<Device>::forward(device, arguments{.tokens = tokens,
                                                         .table = as_view(table),
                                                         .positions = as_view(positions),
                                                         .out = as_view(out),
                                                         .position_of = position_of});
}
/// Fails with a message, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void embedding(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: embedding is called without a policy: ht::embedding<ht::amp_bf16>(device, tokens, table, "
                  "positions, out)");
}

/// The gradients of embedding, from dy (rows, width), that of its result: each row of dtable (vocabulary, width) is the
/// sum of the rows of dy with its token, and each row of dpositions (period, width) the sum of the rows at its
/// position; either may be without data if it is not wanted. `mode`: overwrite or add. The order of a sum depends on
/// the tokens alone. Throws as embedding does; if the host cannot read the tokens, one outside the vocabulary has no
/// gradient. With ht::cuda, include <halftone/exec/cuda/sort.cuh>.
template <class P, class Device, class Dy, class Dtable, class Dpositions>
    requires(detail::kernel_device<Device> && detail::viewables<Dy, Dtable, Dpositions>)
void embedding_gradients(Device& device, const const_view<std::int32_t, 1>& tokens, const Dy& dy, const Dtable& dtable,
                         const Dpositions& dpositions, write_mode mode = write_mode::overwrite) {
    using arguments = kernel::embedding_backward<detail::element_in<Dy>, detail::element_in<Dtable>>;
    static_assert(detail::check_function<P, detail::element_in<Dy>, detail::element_in<Dtable>>());
    static_assert(detail::check_ranks<2, Dy, Dtable, Dpositions>());
    detail::expect_apart(device, "embedding backward", "dy", dy, "dtable", dtable);
    detail::expect_apart(device, "embedding backward", "dy", dy, "dpositions", dpositions);
    kernel::embedding<Device>::backward(device, arguments{.tokens = tokens,
                                                          .dy = as_view(dy),
                                                          .dtable = as_view(dtable),
                                                          .dpositions = as_view(dpositions),
                                                          .mode = mode});
}
/// Fails with a message, where compilers would only list candidates.
template <class Device, class... Views>
    requires(detail::kernel_device<Device>)
void embedding_gradients(Device&, const Views&...) {
    static_assert(sizeof(Device*) == 0,
                  "halftone: embedding_gradients is called without a policy: "
                  "ht::embedding_gradients<ht::amp_bf16>(device, tokens, dy, dtable, dpositions)");
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
