// SPDX-License-Identifier: MIT
/// \file
/// Converts initial or loaded values to masters and to the copies that kernels read, in host memory.
///
///     detail::round_values<float, bfloat16, rounding::nearest_even>(masters, copies, count);
///     detail::split_values(values, remainders, copies, count);
#pragma once

#include <cstddef>

#include <halftone/number/remainder.hpp>
#include <halftone/number/round_to.hpp>
#include <halftone/number/traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// Rounds masters that are not split to copies.
template <class Param, class Compute, rounding CopyRounding>
void round_values(const std::byte* master, std::byte* copy, std::size_t count) {
    const auto* from = reinterpret_cast<const Param*>(master);
    auto* to = reinterpret_cast<Compute*>(copy);
    for (std::size_t i = 0; i < count; ++i) {
        if constexpr (wide_number<Param>) {
            to[i] = round_double<Compute, CopyRounding>(static_cast<double>(from[i]));
        } else {
            to[i] = round_to<Compute, CopyRounding>(static_cast<float>(from[i]));
        }
    }
}

/// Splits floats into copies (upper halves) and remainders.
inline void split_values(const std::byte* values, std::byte* master, std::byte* copy, std::size_t count) {
    const auto* from = reinterpret_cast<const float*>(values);
    for (std::size_t i = 0; i < count; ++i) {
        const float_halves h = halves_of(from[i]);
        reinterpret_cast<bfloat16_remainder*>(master)[i] = h.rest;
        reinterpret_cast<bfloat16*>(copy)[i] = h.nearest;
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
