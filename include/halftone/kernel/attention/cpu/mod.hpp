// SPDX-License-Identifier: MIT
/// \file
/// Type-erased functions of scores (score_mod/score_mod.hpp) for the CPU's kernels, which are thus compiled once for all
/// expressions.
#pragma once

#include <halftone/kernel/attention/cpu/scores.hpp>
#include <halftone/kernel/attention/score_mod/interval.hpp>
#include <halftone/kernel/attention/score_mod/score_mod.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Products of queries and keys, (rows, columns), which a body replaces by scores: the functions' results, minus
/// infinity for hidden pairs.
struct attention_mod_tile {
    attention_block at;  ///< queries are rows
    float* scores;       ///< (queries, keys), readable and writable up to whole vectors
    extent stride;
    float scale;
};

/// A panel of transposed products, (keys, columns of a panel), which a body replaces by the base-2 logarithms of
/// weights: minus infinity for hidden pairs, whatever the query's other scores are. It also replaces the gradients dp
/// of weights by (dp - dot) times the derivative of the score with respect to the product, 0 for hidden pairs.
struct attention_mod_gradient_tile {
    attention_block at;  ///< keys are rows
    float *scores, *weight_gradients;
    const float *maxima, *logs, *dots;  ///< (columns), from attention_query_terms
    float scale;
};

/// The bodies for one expression on one instruction set. modify and modify_gradients return whether some pair is hidden.
struct attention_mod_bodies {
    const void* expressions;
    bool (*modify)(const void* expressions, const attention_mod_tile& tile);
    bool (*modify_gradients)(const void* expressions, const attention_mod_gradient_tile& tile);
    bool (*hides)(const void* expressions, const attention_block& block);
    pair_dropout dropout;

    bool hides_all(const attention_block& block) const { return hides(expressions, block); }
};

/// An expression of scores and its derivative with respect to the score.
template <class E>
struct attention_mod_expressions {
    using slope = std::remove_const_t<decltype(derivative<mod_score>(std::declval<const E&>()))>;
    E score;
    slope by_score;

    explicit attention_mod_expressions(const E& e) : score(e), by_score(derivative<mod_score>(e)) {}
    static bool hides(const void* expressions, const attention_block& block) {
        return hides_block(static_cast<const attention_mod_expressions*>(expressions)->score, block);
    }
};

/// Whether a score is the minus infinity of a hidden pair, by its bits.
inline bool is_hidden_score(float score) { return bit_cast<std::uint32_t>(score) == 0xff800000u; }

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
