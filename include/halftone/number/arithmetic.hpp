// SPDX-License-Identifier: MIT
/// \file
/// The compound assignments (`+=`, `-=`, `*=`, `/=`) of all narrow number types.
///
/// A narrow number converts to float implicitly and exactly, so `a * b`, `a < b` and `a == 0` are float expressions
/// already. The only operators missing are those that write a result back: `a += b` computes in float and rounds once
/// to
/// the narrow type.
#pragma once

#include <halftone/config.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// An empty base of `Number`, a type that is explicitly constructed from float and implicitly converted to it.
template <class Number>
struct narrow_arithmetic {
    friend HALFTONE_HD HALFTONE_INLINE constexpr Number& operator+=(Number& a, float b) {
        return a = Number(static_cast<float>(a) + b);
    }
    friend HALFTONE_HD HALFTONE_INLINE constexpr Number& operator-=(Number& a, float b) {
        return a = Number(static_cast<float>(a) - b);
    }
    friend HALFTONE_HD HALFTONE_INLINE constexpr Number& operator*=(Number& a, float b) {
        return a = Number(static_cast<float>(a) * b);
    }
    friend HALFTONE_HD HALFTONE_INLINE constexpr Number& operator/=(Number& a, float b) {
        return a = Number(static_cast<float>(a) / b);
    }
};

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
