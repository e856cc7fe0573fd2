// SPDX-License-Identifier: MIT
/// \file
/// Looks up rows of a table by token, and adds rows of a second table by position.
///
///     auto x = ht::embedding<roles>(ctx, tokens, table, positions);     // tokens: (batch, time), x: (batch, time, width)
///     auto x = ht::embedding<roles>(ctx, tokens, table, positions, at);     // at: (batch, time), each token's position
#pragma once

#include <optional>

#include <halftone/autodiff/engine/operation.hpp>
#include <halftone/kernel/embedding/embedding.hpp>
#include <halftone/kernel/padding/padding.hpp>
#include <halftone/kernel/embedding_rows/embedding_rows.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

namespace detail {

template <class Y, class Table, class Positions>
struct embedding_record {
    using operation = op::embedding;
    variable<std::int32_t, 2> tokens;
    gradient_of<Y, 3> dy;
    Table table;
    Positions positions;
    variable<std::int32_t, 2> position_of{};  ///< the position of each token; empty: its index along time
    std::int32_t padding = -1;  ///< the token whose row gets no gradient; -1: none

    template <class Tape>
    void propagate(Tape& tape) {
        using accumulate = typename Table::storage::accumulate;
        using arguments = kernel::embedding_backward<Y, accumulate>;
        using kernel_type = kernel::embedding<typename Tape::device_type>;
        const auto all = as_const(flatten(tokens));
        if constexpr (has_sparse_gradient<typename Table::storage>) {
            if (const auto to = tape.row_target(table, all.size()); to.is_wanted) {
                kernel::embedding_rows<typename Tape::device_type>::add(
                    tape.device(), kernel::embedding_rows_backward<Y, accumulate>{.tokens = all,
                                                                                  .dy = as_const(as_rows(dy)),
                                                                                  .vocabulary = table.shape()[0],
                                                                                  .rows = to.rows,
                                                                                  .before = to.before,
                                                                                  .padding = padding});
            }
        } else if (const auto to = tape.gradient_target(table)) {
            const auto copy = without_padding(tape);
            const const_view<Y, 2> dtokens = copy.is_empty() ? as_const(as_rows(dy)) : as_const(as_rows(copy));
            kernel_type::backward(tape.device(), arguments{.tokens = all,
                                                           .dy = dtokens,
                                                           .dtable = view(to.data, table.shape()),
                                                           .mode = to.mode,
                                                           .squares_before = to.squares_before,
                                                           .squares = to.squares});
        }
        if constexpr (!is_absent<Positions>) {
            if (const auto to = tape.gradient_target(positions)) {
                const extent time = tokens.shape()[1], width = positions.shape()[1];
                if (!position_of.is_empty()) {
                    kernel_type::backward(tape.device(), arguments{.tokens = as_const(flatten(position_of)),
                                                                   .dy = as_rows(dy),
                                                                   .dtable = view(to.data, positions.shape()),
                                                                   .mode = to.mode});
                    return;
                }
                kernel_type::backward(tape.device(), arguments{.tokens = all,
                                                               .dy = as_rows(dy),
                                                               .dpositions = view(to.data, shape<2>{time, width}),
                                                               .mode = to.mode});
                // Positions beyond this batch's length have a gradient of zero.
                if (to.mode == write_mode::overwrite)
                    tape.device().fill(to.data + time * width, (positions.shape()[0] - time) * width, accumulate(0.0f));
            }
        }
    }

  private:
    /// A copy of dy with zeros in the rows of padding; empty if no token is padding.
    template <class Tape>
    variable<Y, 3> without_padding(Tape& tape) const {
        if (padding < 0) return {};
        auto copy = tape.template make<Y>(dy.shape(), false);
        kernel::clear_padding(tape.device(), as_const(flatten(tokens)), padding, as_const(as_rows(dy)), as_rows(copy));
        return copy;
    }
};

/// PyTorch's padding_idx, which may be negative to count from the end, as a token; -1 if there is none. Throws
/// argument_error.
inline std::int32_t padding_token(const std::optional<extent>& padding_idx, extent vocabulary) {
    if (!padding_idx) return -1;
    if (*padding_idx < -vocabulary || *padding_idx >= vocabulary)
        fail<argument_error>("embedding: padding_idx is ", *padding_idx, "; expected ", -vocabulary, " to ", vocabulary - 1);
    return static_cast<std::int32_t>(*padding_idx < 0 ? *padding_idx + vocabulary : *padding_idx);
}

}  // namespace detail

/// x[b, t] = table[tokens[b, t]] + positions[t], or + positions[position_of[b, t]] if position_of is given, as
/// documents_to_device returns it (autodiff/op/packed.hpp). table: (vocabulary, width), positions: (context, width) or
/// `absent`. The tokens may be in host memory; memory that the device can read must stay unchanged until the backward
/// pass has run. Throws shape_error if time exceeds the context, and argument_error for a token outside the vocabulary,
/// unless only the GPU can read it: then its row is NaN. The row of the token padding_idx, which counts from the end if
/// negative, gets no gradient: torch.nn.functional.embedding's padding_idx. A table with a sparse gradient omits that
/// row from it, so that a step does not change the row.
template <class Roles, class Context, class Table, class Positions>
auto embedding(Context&& context, const const_view<std::int32_t, 2>& tokens, const Table& table,
               const Positions& positions, const variable<std::int32_t, 2>& position_of = {},
               const std::optional<extent>& padding_idx = std::nullopt) {
    using Y = typename Roles::output;
    using value = typename Table::compute;
    auto& root = context.root();
    const auto range = root.template range<Roles>(op::embedding::name);
    const extent time = tokens.extent_of(1), width = table.shape()[1];
    const bool wanted = detail::wants_gradient(table, positions);
    const std::int32_t padding = detail::padding_token(padding_idx, table.shape()[0]);
    const auto ids = detail::ids_to_device(root, "embedding", "token", tokens, table.shape()[0]);
    auto y = root.template make<Y>(shape<3>{tokens.extent_of(0), time, width}, wanted);
    const_view<value, 2> rows{};
    const_view<std::int32_t, 1> named{};
    if constexpr (!is_absent<Positions>) {
        if (!position_of.is_empty()) {
            kernel::expect("embedding", "position_of", position_of.view(), tokens.shape());
            named = flatten(position_of);
            rows = positions.values();
        } else {
            if (time > positions.shape()[0])
                fail<shape_error>("embedding: ", time, " tokens in a row; the context holds ", positions.shape()[0]);
            rows = const_view<value, 2>(positions.values().data(), {time, width});
        }
    }
    kernel::embedding<typename std::remove_cvref_t<Context>::device_type>::forward(
        root.device(), kernel::embedding_forward<value, Y>{.tokens = flatten(ids),
                                                           .table = table.values(),
                                                           .positions = rows,
                                                           .out = as_rows(y),
                                                           .position_of = named});
    if constexpr (std::remove_cvref_t<Context>::records) {
        if (wanted)
            root.record(detail::embedding_record<Y, Table, Positions>{ids, gradient_of(y), table, positions, position_of,
                                                                      padding});
    }
    return y;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
