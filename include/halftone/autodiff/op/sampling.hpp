// SPDX-License-Identifier: MIT
/// \file
/// Operations of text generation on a row of logits: its largest elements, and an index drawn at random.
///
///     const auto best = ht::topk(eval, logits, 50);                                   // values and indices, (…, 50)
///     const auto p = ht::softmax(eval, best.values);
///     const auto drawn = ht::multinomial(eval, p, 1, {.seed = 42, .step = t});         // (…, 1), indices of the 50
///     const auto token = ht::gather(eval, best.indices, ht::axes<-1>, drawn);
#pragma once

#include <halftone/autodiff/op/gather.hpp>
#include <halftone/kernel/multinomial/multinomial.hpp>
#include <halftone/kernel/topk/topk.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The result of topk.
template <class T, int Rank>
struct topk_result {
    variable<T, Rank> values;
    variable<std::int32_t, Rank> indices;
};

/// torch.topk(x, k): the k largest elements of each row (the last axis), the largest first, and their indices. Of equal
/// elements the one with the lower index is first; NaN is the largest. `values` is recorded with the gradient with
/// respect to x, `indices` is a constant. Throws argument_error if k exceeds the length of a row.
template <recording_context Context, class X, int Rank>
topk_result<X, Rank> topk(Context&& context, const variable<X, Rank>& x, extent k) {
    static_assert(Rank >= 1, "halftone: topk takes rows: variables of rank 1 and more");
    auto& root = context.root();
    if (k < 0) fail<argument_error>("topk: k is ", k, "; expected 0 or more");
    const auto indices = root.template make<std::int32_t>(detail::with_last(x.shape(), k), false);
    halftone::topk(root.device(), as_const(as_rows(x)), as_rows(indices));
    return {gather<X>(context, x, axes<-1>, indices), indices};
}

/// torch.multinomial(weights, num_samples, replacement): num_samples indices for each row (the last axis), drawn with
/// probabilities proportional to the row's weights, which must not be negative. The indices depend only on the options'
/// seed and step, the row's number and its weights. The result is a constant. Throws argument_error for rows from which
/// nothing can be drawn, unless only the GPU can read them: then the index is -1.
template <recording_context Context, class X, int Rank>
variable<std::int32_t, Rank> multinomial(Context&& context, const variable<X, Rank>& weights, extent num_samples,
                                         const multinomial_options& options = {}) {
    static_assert(Rank >= 1, "halftone: multinomial takes rows: variables of rank 1 and more");
    auto& root = context.root();
    if (num_samples < 0) fail<argument_error>("multinomial: num_samples is ", num_samples, "; expected 0 or more");
    const auto range = root.template range<policy_of<Context>>("multinomial");
    auto samples = root.template make<std::int32_t>(detail::with_last(weights.shape(), num_samples), false);
    halftone::multinomial(root.device(), as_const(as_rows(weights)), as_rows(samples), options);
    return samples;
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
