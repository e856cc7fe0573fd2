// SPDX-License-Identifier: MIT
/// \file
/// Dropout of attention's probabilities: which pairs of a query and a key are dropped. No mask is stored.
///
///     ht::attention(ctx, q, k, v, {}, ht::attention_dropout{.p = 0.1f});
///
/// The weight of (batch, head, query, key) is element ((batch heads + head) queries + query) keys + key of a dropout
/// (kernel/dropout/dropout.hpp) of the matrix of all weights. Philox's numbers for (seed, pass, tensor, element) decide
/// whether it is dropped, so that the decision is the same in the backward pass, on every device and under every
/// strategy. Weights that are not dropped are divided by 1 - p.
#pragma once

#include <halftone/kernel/dropout/dropout.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// An argument of attention, among the functions of scores: on a tape, each probability is set to zero with probability
/// p, and otherwise divided by 1 - p, like dropout_p of F.scaled_dot_product_attention. In a context that records
/// nothing it does nothing.
struct attention_dropout {
    float p = 0.1f;  ///< 0 to 1

    /// Throws argument_error for a p outside 0 to 1.
    void check() const {
        if (!(p >= 0 && p <= 1)) fail<argument_error>("attention_dropout: p is ", p, "; expected 0 to 1");
    }
};

namespace detail {

/// Which weights are dropped; none without a draw.
struct pair_dropout {
    kernel::dropout_draw draw{nullptr, 0, 0, 1};

    HALFTONE_HD bool is_there() const { return draw.kept_from != 0; }
    /// The factor of weight `pair`. `record` is the record to which draw.record points.
    HALFTONE_HD float factor(const kernel::random_record& record, std::uint64_t pair) const {
        if (!is_there()) return 1;
        return random_bits(record.seed, record.pass, draw.tensor, pair) < draw.kept_from ? 0 : draw.scale;
    }
    /// Calls f(i) for each weight among first to first + count - 1 that is dropped.
    template <class F>
    void for_dropped(std::uint64_t first, extent count, const F& f) const {
        const kernel::random_record record = *draw.record;
        for (extent i = 0; i < count;) {
            const std::uint64_t at = first + static_cast<std::uint64_t>(i);
            const philox::block four = random_block(record.seed, record.pass, draw.tensor, at / 4);
            for (auto word = static_cast<unsigned>(at % 4); word < 4 && i < count; ++word, ++i) {
                if (four[word] < draw.kept_from) f(i);
            }
        }
    }
};

/// The number of a weight among all weights.
HALFTONE_HD inline std::uint64_t pair_number(extent head, extent queries, extent query, extent keys, extent key) {
    return (static_cast<std::uint64_t>(head) * static_cast<std::uint64_t>(queries) + static_cast<std::uint64_t>(query)) *
               static_cast<std::uint64_t>(keys) +
           static_cast<std::uint64_t>(key);
}

/// The p of an attention_dropout among functions; 0 without one.
template <class... F>
float dropout_of(const F&... functions) {
    float p = 0;
    const auto look = [&]<class T>(const T& f) {
        if constexpr (std::is_same_v<T, attention_dropout>) p = f.p;
    };
    (look(functions), ...);
    return p;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
