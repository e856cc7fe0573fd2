// SPDX-License-Identifier: MIT
/// \file
/// Dropout of attention's probabilities: which pairs of a query and a key are dropped, without a stored mask.
///
///     ht::attention(ctx, q, k, v, {}, ht::attention_dropout{.p = 0.1f});
///
/// Weight (batch, head, query, key) is dropped as element ((batch heads + head) queries + query) keys + key of a dropout
/// (kernel/dropout/dropout.hpp) of the matrix of all weights: by Philox's numbers for (seed, pass, tensor, element), the
/// same in the backward pass, on every device and by every strategy. What is kept is divided by 1 - p.
#pragma once

#include <halftone/kernel/dropout/dropout.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Stands among attention's functions of scores: on a tape, each probability is zero with probability p, else divided by
/// 1 - p, as dropout_p of F.scaled_dot_product_attention. In a context that records nothing it does nothing.
struct attention_dropout {
    float p = 0.1f;  ///< 0 to 1

    /// Throws argument_error for a p outside [0, 1].
    void check() const {
        if (!(p >= 0 && p <= 1)) fail<argument_error>("attention_dropout: p is ", p, "; expected 0 to 1");
    }
};

namespace detail {

/// Which weights are dropped; nothing, unless it is drawn.
struct pair_dropout {
    kernel::dropout_draw draw{nullptr, 0, 0, 1};

    HALFTONE_HD bool is_there() const { return draw.kept_from != 0; }
    /// What weight `pair` is multiplied with. `record` is what draw.record points to.
    HALFTONE_HD float factor(const kernel::random_record& record, std::uint64_t pair) const {
        if (!is_there()) return 1;
        return random_bits(record.seed, record.pass, draw.tensor, pair) < draw.kept_from ? 0 : draw.scale;
    }
    /// f(i) for each dropped one of the weights first to first + count - 1.
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

/// The number of a weight among all.
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
