// SPDX-License-Identifier: MIT
/// \file
/// The definition of an embedding and of its gradients, in double.
///
///     out[r] = table[token[r]] + positions[r mod period]         or positions[position_of[r]]
///
///     reference::embedding(tokens, table, positions, out);
#pragma once

#include <cstdint>

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// out[i] = table[tokens[i]] + positions[i mod period], or positions[position_of[i]] if position_of has data.
template <class I, class T, class Y>
void embedding(const view<I, 1>& tokens,                               // (rows)
               const view<T, 2>& table,                                // (vocabulary, width)
               const view<T, 2>& positions,                            // (period, width), or without data
               const view<Y, 2>& out,                                  // (rows, width)
               const const_view<std::int32_t, 1>& position_of = {}) {  // (rows), or without data
    for (extent r = 0; r < tokens.extent_of(0); ++r) {
        for (extent j = 0; j < table.extent_of(1); ++j) {
            double sum = static_cast<double>(table(tokens(r), j));
            if (positions.data() != nullptr) {
                const extent position = position_of.data() != nullptr ? position_of(r) : r % positions.extent_of(0);
                sum += static_cast<double>(positions(position, j));
            }
            out(r, j) = static_cast<Y>(sum);
        }
    }
}

/// Adds to dtable and dpositions, either of which may be without data.
template <class I, class Y, class G>
void embedding_backward(const view<I, 1>& tokens, const view<Y, 2>& dy, const view<G, 2>& dtable,
                        const view<G, 2>& dpositions) {
    for (extent r = 0; r < tokens.extent_of(0); ++r) {
        for (extent j = 0; j < dy.extent_of(1); ++j) {
            const double d = static_cast<double>(dy(r, j));
            if (dtable.data() != nullptr)
                dtable(tokens(r), j) = static_cast<G>(static_cast<double>(dtable(tokens(r), j)) + d);
            if (dpositions.data() != nullptr) {
                G& sum = dpositions(r % dpositions.extent_of(0), j);
                sum = static_cast<G>(static_cast<double>(sum) + d);
            }
        }
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
