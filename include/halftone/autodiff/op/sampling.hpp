// SPDX-License-Identifier: MIT
/// \file
/// What generation does with a row of logits: its largest numbers, and an index drawn at random.
///
///     const auto best = ht::topk(eval, logits, 50);                                   // values and indices, (…, 50)
///     const auto p = ht::softmax(eval, best.values);
///     const auto drawn = ht::multinomial(eval, p, 1, {.seed = 42, .step = t});         // (…, 1), into the 50
///     const auto token = ht::gather(eval, best.indices, ht::axes<-1>, drawn);
#pragma once

#include <halftone/autodiff/op/gather.hpp>
#include <halftone/kernel/multinomial/multinomial.hpp>
#include <halftone/kernel/topk/topk.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// What topk gives.
template <class T, int Rank>
struct topk_result {
    variable<T, Rank> values;
    variable<std::int32_t, Rank> indices;
};

/// The k largest numbers of each row (the last axis), the largest first, and their places: torch.topk(x, k). Of equal numbers
/// that at the lower index is first; NaN is the largest. values is recorded with its gradient by x, indices are
/// constants. Throws argument_error for more than a row has.
template <recording_context Context, class X, int Rank>
topk_result<X, Rank> topk(Context&& context, const variable<X, Rank>& x, extent k) {
    static_assert(Rank >= 1, "halftone: topk takes rows: variables of rank 1 and more");
    auto& root = context.root();
    if (k < 0) fail<argument_error>("topk: k is ", k, "; expected 0 or more");
    const auto indices = root.template make<std::int32_t>(detail::with_last(x.shape(), k), false);
    halftone::topk(root.device(), as_const(as_rows(x)), as_rows(indices));
    return {gather<X>(context, x, axes<-1>, indices), indices};
}

/// num_samples indices of each row (the last axis), drawn with probabilities that the row's weights give, which are not
/// negative and have any sum: torch.multinomial(weights, num_samples, replacement). What is drawn follows from the
/// options' seed and step, the row's number and its weights alone. A constant. Throws argument_error for rows of which
/// nothing can be drawn, unless only the GPU sees them: then the index is -1.
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
