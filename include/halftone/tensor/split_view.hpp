// SPDX-License-Identifier: MIT
/// \file
/// A view of floats stored as two halves (number/remainder.hpp): a split master.
///
///     const auto master = ht::to_host(device, weight.master());       // tensor/host_tensor.hpp: joined to floats
#pragma once

#include <halftone/number/remainder.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// Views of both halves; they have the same shape and are contiguous.
template <int Rank>
struct split_view {
    const_view<bfloat16, Rank> nearest{};        ///< the upper halves, which kernels read
    const_view<bfloat16_remainder, Rank> rest{};

    const halftone::shape<Rank>& shape() const { return nearest.shape(); }
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
