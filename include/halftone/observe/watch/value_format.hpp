// SPDX-License-Identifier: MIT
/// \file
/// The type of a tensor's values as reports name it: one of the library's, or a number type of a user's own.
///
///     if (t.format == ht::value_format::float16) ...
///     std::cout << ht::name(t.format) << " ends at " << t.format->max << '\n';
#pragma once

#include <functional>

#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/float8.hpp>
#include <halftone/number/value_traits.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The type of values that are shown; 8-bit ones are those of operands. float unless it is given.
class value_format {
  public:
    static const value_format float32, float16, bfloat16, float8_e4m3, float8_e5m2;

    constexpr value_format() : traits_(&value_traits_of<float>) {}
    /// The format of T, a number type of the library or of a user's own.
    template <number T>
    static constexpr value_format of() {
        return value_format(&value_traits_of<T>);
    }
    const value_traits* operator->() const { return traits_; }

    friend constexpr bool operator==(const value_format&, const value_format&) = default;
    friend bool operator<(const value_format& a, const value_format& b) { return std::less<>{}(a.traits_, b.traits_); }

  private:
    constexpr explicit value_format(const value_traits* traits) : traits_(traits) {}
    const value_traits* traits_;
};
inline constexpr value_format value_format::float32 = value_format::of<float>();
inline constexpr value_format value_format::float16 = value_format::of<halftone::float16>();
inline constexpr value_format value_format::bfloat16 = value_format::of<halftone::bfloat16>();
inline constexpr value_format value_format::float8_e4m3 = value_format::of<halftone::float8_e4m3>();
inline constexpr value_format value_format::float8_e5m2 = value_format::of<halftone::float8_e5m2>();

/// The format's name, such as "bfloat16".
inline const char* name(value_format format) { return format->name; }

}  // namespace HALFTONE_ABI
}  // namespace halftone
