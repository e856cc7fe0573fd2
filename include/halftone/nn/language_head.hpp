// SPDX-License-Identifier: MIT
/// \file
/// The head of a language model. A constructor argument determines whether it has a weight or, tied, reads the table of
/// tokens.
///
///     ht::nn::language_head<ht::at<P, "head">> head{store, vocabulary, width, tied};
///     auto loss = head.loss(ctx, x, table, targets);         // x: (batch, time, width); table: of an embedding
///     auto logits = head.logits(ctx, x, table);              // (batch, time, vocabulary)
#pragma once

#include <halftone/autodiff/op/loss.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace nn {

/// The head of a language model: logits = x weightᵀ. If it is tied, it has no weight and reads another layer's table.
template <class P>
struct language_head {
    using policy = P;
    using operation = op::linear_cross_entropy;
    static constexpr bool owns_parameters = true;

    extent classes, width;
    bool is_tied;
    parameter<storage_signature<P, operation>, 2> weight;  // (classes, width); not in the store if the head is tied

    language_head(store& s, extent class_count, extent row, bool tied) : classes(class_count), width(row), is_tied(tied) {
        if (!tied) weight = s.add<P, operation>("weight", shape<2>{classes, width}, initial{.deviation = 0.02f});
    }

    /// The mean cross-entropy of the logits x weightᵀ, which are stored only as `keep` specifies. The weight of a tied
    /// head is `table`. Throws shape_error, and argument_error for a target that is not a class.
    template <class Context, class X, class Table>
    auto loss(Context&& ctx, const variable<X, 3>& x, const Table& table, const const_view<std::int32_t, 2>& targets,
              keep_logits keep = keep_logits::where_small) const {
        using roles = layer_roles<P, operation, Context>;
        if (is_tied) return halftone::linear_cross_entropy<roles>(ctx, x, table, targets, keep);
        return halftone::linear_cross_entropy<roles>(ctx, x, weight, targets, keep);
    }
    /// The logits, in the policy's `output`. Throws shape_error.
    template <class Context, class X, int Rank, class Table>
    auto logits(Context&& ctx, const variable<X, Rank>& x, const Table& table) const {
        using roles = layer_roles<P, operation, Context>;
        if (is_tied) return halftone::linear<roles>(ctx, x, table, absent{});
        return halftone::linear<roles>(ctx, x, weight, absent{});
    }
    static decltype(auto) visit(auto&&, auto&& f) { return f(); }
};

}  // namespace nn
}  // namespace HALFTONE_ABI
}  // namespace halftone
