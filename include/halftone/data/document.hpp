// SPDX-License-Identifier: MIT
/// \file
/// Tokens that belong together, and which of them are to be predicted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Tokens that belong together. It owns nothing.
struct document {
    std::span<const std::int32_t> tokens{};
    extent prompt = 0;  ///< this many tokens at the beginning are not to be predicted
    std::span<const std::uint8_t>
        predicted{};  ///< one for each token, 0 where it is not to be predicted; empty: all behind the prompt are

    extent size() const { return static_cast<extent>(tokens.size()); }
    /// Whether a loss counts the prediction of this token. Nothing predicts the first.
    bool counts(extent index) const {
        return index > 0 && index >= prompt && (predicted.empty() || predicted[static_cast<std::size_t>(index)] != 0);
    }
    /// Whether a loss counts anything at all.
    bool counts_any() const {
        for (extent i = 1; i < size(); ++i) {
            if (counts(i)) return true;
        }
        return false;
    }
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
