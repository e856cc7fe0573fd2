// SPDX-License-Identifier: MIT
/// \file
/// Numbers of a file that the type they are converted to does not hold: finite ones beyond its largest, which become infinity, NaN or
/// the largest, infinities that become a finite number, and NaNs that become a number. Loads refuse them.
///
///     detail::first_lost(value_traits_of<float>, from, value_traits_of<float16>, to, count)    // the number, if there is one
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include <halftone/io/dtype.hpp>
#include <halftone/number/classify.hpp>
#include <halftone/number/value_traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

/// The traits of a floating-point type of files. Throws argument_error for another.
inline const value_traits& traits_of(dtype type) {
    const value_traits* t = nullptr;
    with_float_type(type, [&t]<class T>() { t = &value_traits_of<T>; });
    return *t;
}

/// Whether y, to which x was rounded in this type, does not stand for x: errors of rounding are stated by the traits.
inline bool is_lost(double x, double y, const value_traits& type) {
    if (is_nan(x)) return !is_nan(y);
    if (!is_finite(x)) return is_finite(y);
    if (!is_finite(y)) return true;
    const double magnitude = x < 0 ? -x : x, error = x < y ? y - x : x - y;
    return magnitude > type.max && error > type.unit_roundoff * magnitude + type.min_subnormal / 2;
}

/// Whether a number of one type may be lost in another; of a type that holds all of its range, infinities and NaNs stay as they are.
inline bool may_lose(const value_traits& there, const value_traits& here) {
    return here.is_own || here.max < there.max;
}

/// The first of these numbers that was lost when they were converted.
inline std::optional<double> first_lost(const value_traits& there, const std::byte* from, const value_traits& here,
                                        const std::byte* to, std::size_t count) {
    if (!may_lose(there, here)) return std::nullopt;
    constexpr std::size_t piece = 4096;
    std::vector<double> before(std::min(piece, count)), after(before.size());
    for (std::size_t done = 0; done < count; done += piece) {
        const std::size_t some = std::min(piece, count - done);
        there.to_doubles(from + done * there.bytes, some, before.data());
        // Most pieces have no number that could be lost, and are not converted back.
        const auto holds = [&here](double x) { return -here.max <= x && x <= here.max; };
        if (std::all_of(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(some), holds)) continue;
        here.to_doubles(to + done * here.bytes, some, after.data());
        for (std::size_t i = 0; i < some; ++i) {
            if (is_lost(before[i], after[i], here)) return before[i];
        }
    }
    return std::nullopt;
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
