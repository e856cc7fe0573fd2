// SPDX-License-Identifier: MIT
/// \file
/// Learned vectors for ids out of a large vocabulary, of which a step looks up few: the gradient is held as the rows
/// that were looked up, and a step updates those alone.
///
///     ht::nn::sparse_embedding<ht::at<P, "items">> items{store, 1'000'000, 64};
///     auto x = items(ctx, ids);                              // ids: (batch, time), x: (batch, time, 64)
///
/// No gradient of the table's size is held, and neither norm, finite check nor step reads one. What a model trains and
/// how stays the same: accumulators, scalers and clipping see the rows as they see dense gradients, and their norm and
/// found_inf include them.
///
/// A step changes no row that was not looked up in its window: neither the row nor its moments decay. That is what
/// torch.optim.SparseAdam does (lazy Adam), with AdamW's decoupled decay of the rows that are changed; rows looked up
/// in every step, and any rows under ht::sgd without momentum and decay, move as with a dense gradient, to the bit.
/// Roundings at random follow from the place of a number in its group of the store: the table is a group of its own, and
/// parameters that a dense table would have stood beside are rounded by other random numbers.
///
/// The table can only be looked up: a head that shares it has a gradient in every row, and does not compile.
#pragma once

#include <halftone/autodiff/op/embedding.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// How a sparse table begins, and how much room its gradient has.
struct sparse_embedding_options {
    initial table{.deviation = 0.02f};  ///< how the table begins
    /// Rows of gradient that there is room for, taken with the accumulator: the tokens of a window, no more. A window
    /// of more throws argument_error in its backward pass. 0: the room grows to that of the largest window, which
    /// renews captured steps.
    extent most_rows = 0;
};

/// A table of learned vectors, one for each id, whose gradient is held as the rows that were looked up.
template <class P>
struct sparse_embedding {
    using policy = P;
    using operation = op::sparse_embedding;
    using computes = op::embedding;
    static constexpr bool owns_parameters = true;

    parameter<storage_signature<P, operation>, 2> table;  // (vocabulary, width)

    sparse_embedding(store& s, extent vocabulary, extent width, const sparse_embedding_options& options = {})
        : table(s.add<P, operation>("table", shape<2>{vocabulary, width}, options.table, options.most_rows)) {}

    /// The rows of these ids: (batch, time, width), in the policy's `output`. Throws argument_error for an id outside
    /// the table (on a CPU).
    template <class Context>
    auto operator()(Context&& ctx, const const_view<std::int32_t, 2>& ids) const {
        return halftone::embedding<layer_roles<P, op::embedding, Context>>(ctx, ids, table, absent{});
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
