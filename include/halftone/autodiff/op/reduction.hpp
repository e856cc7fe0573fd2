// SPDX-License-Identifier: MIT
/// \file
/// The reduction of a loss over its elements: to their mean, to their sum, or none.
///
///     auto loss = ht::l1_loss(ctx, x, target, ht::reduction::sum);
///     auto losses = ht::l1_loss<ht::reduction::none>(ctx, x, target);         // in x's shape
#pragma once

#include <halftone/error.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// PyTorch's `reduction`. A loss that is not reduced has axes, and so a different type: therefore `none` is a template
/// argument of losses; the other two are arguments.
enum class reduction { none, mean, sum };

namespace detail {

/// For a loss that is a scalar: throws argument_error for `none`.
inline void check_reduces(const char* operation, reduction r) {
    if (r == reduction::none)
        fail<argument_error>(operation, ": reduction is none, and losses that are not reduced are another type: ", operation,
                             "<ht::reduction::none>(...)");
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
