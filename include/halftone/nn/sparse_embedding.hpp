// SPDX-License-Identifier: MIT
/// \file
/// An embedding for a large vocabulary of which a step looks up few rows: its gradient is sparse, and a step updates
/// only the rows that were looked up.
///
///     ht::nn::sparse_embedding<ht::at<P, "items">> items{store, 1'000'000, 64};
///     auto x = items(ctx, ids);                              // ids: (batch, time), x: (batch, time, 64)
///
/// No gradient of the table's size exists; norm, finite check and step do not read one. Training code does not change:
/// accumulators, scalers and clipping handle the rows like dense gradients, and their norm and found_inf include them.
///
/// A step changes only rows that were looked up in its window: the values and moments of other rows do not decay. That
/// is lazy Adam, as torch.optim.SparseAdam, with AdamW's decoupled decay of the changed rows. Rows that are looked up
/// in every step, and all rows under ht::sgd without momentum and decay, have the same bits as with a dense gradient.
/// The random numbers of stochastic rounding depend on an element's index in its group of the store: the table is a
/// separate group, so that parameters that would share a group with a dense table get different random numbers.
///
/// The table can only be looked up: a head that shares it would have a dense gradient, and does not compile.
#pragma once

#include <halftone/autodiff/op/embedding.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// Options of a sparse table: its initial values, and the capacity of its gradient.
struct sparse_embedding_options {
    initial table{.deviation = 0.02f};  ///< the table's initial values
    /// The capacity of the gradient in rows, allocated with the accumulator: the largest number of tokens in a window.
    /// A window with more throws argument_error in its backward pass. 0: the capacity grows to that of the largest
    /// window, after which captured steps are captured again.
    extent most_rows = 0;
    /// The token whose row gets no gradient and is not changed by steps; negative values count from the end. The row
    /// keeps its initial values, which are random, like those of the other rows (in PyTorch they are zeros);
    /// table.assign sets them.
    std::optional<extent> padding_idx{};
};

/// A table of learnable vectors, one for each id, whose gradient consists of the rows that were looked up.
template <class P>
struct sparse_embedding {
    using policy = P;
    using operation = op::sparse_embedding;
    using computes = op::embedding;
    static constexpr bool owns_parameters = true;
    static constexpr bool gives_stream = true;  // policy/ledger.hpp

    parameter<storage_signature<P, operation>, 2> table;  // (vocabulary, width)
    std::optional<extent> padding_idx;

    /// Throws argument_error for a padding_idx outside the vocabulary.
    sparse_embedding(store& s, extent vocabulary, extent width, const sparse_embedding_options& options = {})
        : table(s.add<P, operation>("table", shape<2>{vocabulary, width}, options.table, options.most_rows)),
          padding_idx(options.padding_idx) {
        halftone::detail::padding_token(padding_idx, vocabulary);
    }

    /// The rows of these ids: (batch, time, width), in the policy's `stream`. Throws argument_error for an id outside
    /// the table (on a CPU).
    template <class Context>
    auto operator()(Context&& ctx, const const_view<std::int32_t, 2>& ids) const {
        return halftone::embedding<stream_roles<P, op::embedding, Context>>(ctx, ids, table, absent{}, {}, padding_idx);
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
