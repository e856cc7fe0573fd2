// SPDX-License-Identifier: MIT
/// \file
/// Constant tensors: zeros and full, for the first state of a recurrent layer, or to be concatenated with data.
///
///     auto h = ht::zeros<ht::bfloat16>(ctx, ht::shape<2>{rows, width});
///     auto x = ht::full<float>(ctx, ht::shape<1>{8}, 0.5);
///
/// They have no gradient. In a loop that starts with such a tensor and continues with a layer's results, it needs the
/// layer's type: typename ht::resolve<P>::output.
#pragma once

#include <halftone/autodiff/op/pointwise.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Every element is `value`, rounded to T. Throws shape_error. Source: torch.full.
template <class T = float, recording_context Context, int Rank>
variable<T, Rank> full(Context&& context, const shape<Rank>& s, double value) {
    auto& root = context.root();
    auto y = root.template make<T>(s, false);
    if constexpr (number<T> && !std::is_same_v<T, double>) {
        root.device().fill(y.view().data(), y.size(), T(static_cast<float>(value)));
    } else {
        root.device().fill(y.view().data(), y.size(), static_cast<T>(value));
    }
    return y;
}
/// Zeros in T. Throws shape_error. Source: torch.zeros.
template <class T = float, recording_context Context, int Rank>
variable<T, Rank> zeros(Context&& context, const shape<Rank>& s) {
    return full<T>(context, s, 0);
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
