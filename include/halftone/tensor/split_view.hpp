// SPDX-License-Identifier: MIT
/// \file
/// Floats in two halves (number/remainder.hpp), as a split master lies in memory.
///
///     const auto master = ht::to_host(device, weight.master());       // tensor/host_tensor.hpp: floats, put together
#pragma once

#include <halftone/number/remainder.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Both views have one shape and are contiguous.
template <int Rank>
struct split_view {
    const_view<bfloat16, Rank> nearest{};        ///< what kernels read
    const_view<bfloat16_remainder, Rank> rest{};

    const halftone::shape<Rank>& shape() const { return nearest.shape(); }
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
