// SPDX-License-Identifier: MIT
/// \file
/// Learned vectors for tokens and for their positions.
///
///     ht::nn::embedding<ht::at<P, "embed">> embed{store, vocabulary, context, width};
///     auto x = embed(ctx, tokens);                           // tokens: (batch, time), x: (batch, time, width)
///     auto x = embed(ctx, tokens, documents);                // packed ones (autodiff/op/packed.hpp)
#pragma once

#include <halftone/autodiff/op/embedding.hpp>
#include <halftone/autodiff/op/packed.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// Its token table may also be the weight of the head (tied weights): the table is stored as a linear layer's weight
/// is.
template <class P>
struct embedding {
    using policy = P;
    using operation = op::linear;
    using computes = op::embedding;
    static constexpr bool owns_parameters = true;

    parameter<storage_signature<P, operation>, 2> tokens;     // (vocabulary, width)
    parameter<storage_signature<P, operation>, 2> positions;  // (context, width)

    std::optional<extent> padding_idx;                        // the token whose row gets no gradient

    /// `tables` says how both begin. padding: the token whose row gets no gradient and stays as it begins, which is not at 0 as
    /// in PyTorch, but as the others: tokens.assign sets it.
    embedding(store& s, extent vocabulary, extent context, extent width, const initial& tables = {.deviation = 0.02f},
              const std::optional<extent>& padding = std::nullopt)
        : tokens(s.add<P, operation, computes>("tokens", shape<2>{vocabulary, width}, tables)),
          positions(s.add<P, operation, computes>("positions", shape<2>{context, width}, tables)),
          padding_idx(padding) {
        detail::padding_token(padding, vocabulary);
    }

    /// tokens[ids] + positions[time], (batch, time, width), in the policy's `output`. In packed documents positions
    /// begin anew in each: `at` is made by documents_to_device. Throws shape_error for a row longer than the context,
    /// argument_error for an id outside the vocabulary (on a CPU).
    template <class Context>
    auto operator()(Context&& ctx, const const_view<std::int32_t, 2>& ids, const documents& at = {}) const {
        return halftone::embedding<layer_roles<P, op::embedding, Context>>(ctx, ids, tokens, positions, at.positions,
                                                                          padding_idx);
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
