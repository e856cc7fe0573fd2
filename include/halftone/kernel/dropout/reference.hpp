// SPDX-License-Identifier: MIT
/// \file
/// The definition of dropout.
///
///     reference::dropout(x, base, y, seed, pass, tensor, 0.1);
#pragma once

#include <halftone/number/philox.hpp>
#include <halftone/tensor/view.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace reference {

/// Whether dropout of probability p, a multiple of 2^-32, drops element i.
inline bool is_dropped(std::uint64_t seed, std::uint32_t pass, std::uint32_t tensor, extent i, double p) {
    return static_cast<double>(random_bits(seed, pass, tensor, static_cast<std::uint64_t>(i))) < p * 0x1p32;
}

/// y = base + x / (1 - p) where x is kept, otherwise base. A base without data counts as zero.
template <class X, class B, class Y>
void dropout(const view<X, 1>& x, const view<B, 1>& base, const view<Y, 1>& y, std::uint64_t seed, std::uint32_t pass,
             std::uint32_t tensor, double p) {
    for (extent i = 0; i < x.extent_of(0); ++i) {
        const double kept = is_dropped(seed, pass, tensor, i, p) ? 0 : static_cast<double>(x(i)) / (1 - p);
        y(i) = static_cast<Y>((base.data() == nullptr ? 0 : static_cast<double>(base(i))) + kept);
    }
}

}  // namespace reference
}  // namespace HALFTONE_ABI
}  // namespace halftone
