// SPDX-License-Identifier: MIT
/// \file
/// The definition of an embedding's gradient by rows, in double.
///
///     reference::embedding_rows(tokens, dy, sums);              // std::map<std::int32_t, std::vector<double>>
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// Adds each row of dy to that of its token, unless that is padding.
template <class I, class Y>
void embedding_rows(const view<I, 1>& tokens, const view<Y, 2>& dy, std::map<std::int32_t, std::vector<double>>& rows,
                    std::int32_t padding = -1) {
    for (extent r = 0; r < tokens.extent_of(0); ++r) {
        if (tokens(r) == padding) continue;
        std::vector<double>& row = rows[tokens(r)];
        row.resize(static_cast<std::size_t>(dy.extent_of(1)));
        for (extent j = 0; j < dy.extent_of(1); ++j) row[static_cast<std::size_t>(j)] += static_cast<double>(dy(r, j));
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
