// SPDX-License-Identifier: MIT
/// \file
/// What a loss makes of its elements: their mean, their sum, or nothing.
///
///     auto loss = ht::l1_loss(ctx, x, target, ht::reduction::sum);
///     auto losses = ht::l1_loss<ht::reduction::none>(ctx, x, target);         // in x's shape
#pragma once

#include <halftone/error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// PyTorch's `reduction`. Losses that are not reduced have axes, which is another type: `none` is a template argument of
/// losses, the other two are arguments.
enum class reduction { none, mean, sum };

namespace detail {

/// Of a loss that is one number. Throws argument_error for `none`.
inline void check_reduces(const char* operation, reduction r) {
    if (r == reduction::none)
        fail<argument_error>(operation, ": reduction is none, and losses that are not reduced are another type: ", operation,
                             "<ht::reduction::none>(...)");
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
