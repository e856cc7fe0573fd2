// SPDX-License-Identifier: MIT
/// \file
/// Learned vectors for tokens and for their positions.
///
///     ht::nn::embedding<ht::at<P, "embed">> embed{store, vocabulary, context, width};
///     auto x = embed(ctx, tokens);                           // tokens: (batch, time), x: (batch, time, width)
///     auto x = embed(ctx, tokens, documents);                // packed documents (autodiff/op/packed.hpp)
///     ht::nn::token_embedding<ht::at<P, "embed">> embed{store, vocabulary, width};      // without positions
#pragma once

#include <halftone/autodiff/op/embedding.hpp>
#include <halftone/autodiff/op/packed.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// A table of tokens' rows and one of positions' rows, which are added. The token table may also be the head's weight
/// (tied weights): the table is stored as a linear layer's weight would be.
template <class P>
struct embedding {
    using policy = P;
    using operation = op::linear;
    using computes = op::embedding;
    static constexpr bool owns_parameters = true;
    static constexpr bool gives_stream = true;  // policy/ledger.hpp

    parameter<storage_signature<P, operation>, 2> tokens;     // (vocabulary, width)
    parameter<storage_signature<P, operation>, 2> positions;  // (context, width)

    std::optional<extent> padding_idx;  // the token whose row gets no gradient

    /// `tables`: the initial values of both tables. padding: the token whose row gets no gradient, and so keeps its initial values
    /// unless the optimizer has a weight decay, which shrinks it as all others, as in PyTorch. They are random, like those of other
    /// rows (in PyTorch they are zeros); tokens.assign sets them.
    embedding(store& s, extent vocabulary, extent context, extent width, const initial& tables = {.deviation = 0.02f},
              const std::optional<extent>& padding = std::nullopt)
        : tokens(s.add<P, operation, computes>("tokens", shape<2>{vocabulary, width}, tables)),
          positions(s.add<P, operation, computes>("positions", shape<2>{context, width}, tables)),
          padding_idx(padding) {
        halftone::detail::padding_token(padding, vocabulary);
    }

    /// tokens[ids] + positions[time], (batch, time, width), in the policy's `stream`. With packed documents, `at` from
    /// documents_to_device, positions start at 0 in each. Throws shape_error for a row longer than the context, and
    /// argument_error for an id outside the vocabulary (on a CPU).
    template <class Context>
    auto operator()(Context&& ctx, const const_view<std::int32_t, 2>& ids, const documents& at = {}) const {
        return halftone::embedding<stream_roles<P, op::embedding, Context>>(ctx, ids, tokens, positions, at.positions,
                                                                            padding_idx);
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

/// Learned vectors for tokens only, for models that encode positions elsewhere, by rotary embedding for instance. The
/// table may also be the weight of the head (tied weights).
template <class P>
struct token_embedding {
    using policy = P;
    using operation = op::linear;
    using computes = op::embedding;
    static constexpr bool owns_parameters = true;
    static constexpr bool gives_stream = true;  // policy/ledger.hpp

    parameter<storage_signature<P, operation>, 2> tokens;  // (vocabulary, width)

    /// `table`: the initial values of the table.
    token_embedding(store& s, extent vocabulary, extent width, const initial& table = {.deviation = 0.02f})
        : tokens(s.add<P, operation, computes>("tokens", shape<2>{vocabulary, width}, table)) {}

    /// tokens[ids], (batch, time, width), in the policy's `stream`. Throws argument_error for an id outside the
    /// vocabulary (on a CPU).
    template <class Context>
    auto operator()(Context&& ctx, const const_view<std::int32_t, 2>& ids) const {
        return halftone::embedding<stream_roles<P, op::embedding, Context>>(ctx, ids, tokens, absent{});
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
