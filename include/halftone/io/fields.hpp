// SPDX-License-Identifier: MIT
/// \file
/// The states that checkpoints hold, as JSON, both ways. A state is a struct of numbers, texts and lists of these that
/// names its fields, without a dependency on JSON:
///
///     struct position {                                                      // of a user's own data, say
///         std::int64_t epoch = 0, row = 0;
///         static void visit_fields(auto& self, auto&& f) { f("epoch", self.epoch), f("row", self.row); }
///     };
///
/// A number that is not finite is stored as a text; all others come back with their bits.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <halftone/io/finite_json.hpp>
#include <halftone/io/strict_json.hpp>
#include <halftone/number/classify.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

template <class S, class F>
    requires requires(S& s, const F& f) { std::remove_const_t<S>::visit_fields(s, f); }
void visit_state_fields(S& s, const F& f) {
    std::remove_const_t<S>::visit_fields(s, f);
}
struct no_fields {
    template <class T>
    void operator()(const char*, T&) const {}
};

/// A struct that names its fields.
template <class S>
concept state_with_fields = requires(S& s) { visit_state_fields(s, no_fields{}); };

template <class T>
nlohmann::json to_json(const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
        const auto x = static_cast<double>(value);
        if (is_finite(x)) return x;
        return not_finite_text(x);
    } else if constexpr (std::is_enum_v<T>) {
        return static_cast<int>(value);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
        return value;
    } else if constexpr (state_with_fields<const T>) {
        nlohmann::json j = nlohmann::json::object();
        visit_state_fields(value, [&j](const char* name, const auto& field) { j[name] = to_json(field); });
        return j;
    } else {
        nlohmann::json list = nlohmann::json::array();
        for (const auto& each : value) list.push_back(to_json(each));
        return list;
    }
}

/// Reads a value of type T; `what` begins the messages. Throws checkpoint_error.
template <class T>
void from_json(const nlohmann::json& j, T& value, const std::string& what) {
    if constexpr (std::is_same_v<T, bool>) {
        if (!j.is_boolean()) fail<checkpoint_error>(what, " is neither true nor false");
        value = j.get<bool>();
    } else if constexpr (std::is_enum_v<T>) {
        int number = 0;
        from_json(j, number, what);
        value = static_cast<T>(number);
    } else if constexpr (std::is_integral_v<T>) {
        const bool fits = j.is_number_unsigned() ? j.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<T>::max())
                                                 : std::is_signed_v<T> && j.is_number_integer() &&
                                                       j.get<std::int64_t>() >= static_cast<std::int64_t>(std::numeric_limits<T>::min());
        if (!fits) fail<checkpoint_error>(what, " is no integer in its range");
        value = j.get<T>();
    } else if constexpr (std::is_floating_point_v<T>) {
        if (j.is_string() && (j == "nan" || j == "inf" || j == "-inf")) {
            value = j == "nan" ? std::numeric_limits<T>::quiet_NaN()
                               : j == "inf" ? std::numeric_limits<T>::infinity() : -std::numeric_limits<T>::infinity();
        } else if (j.is_number()) {
            value = static_cast<T>(j.get<double>());
        } else {
            fail<checkpoint_error>(what, " is no number");
        }
    } else if constexpr (std::is_same_v<T, std::string>) {
        if (!j.is_string()) fail<checkpoint_error>(what, " is no text");
        value = j.get<std::string>();
    } else if constexpr (state_with_fields<T>) {
        if (!j.is_object()) fail<checkpoint_error>(what, " is no object");
        visit_state_fields(value, [&](const char* name, auto& field) {
            if (!j.contains(name)) fail<checkpoint_error>(what, " has no ", name);
            from_json(j[name], field, what + "." + name);
        });
    } else {
        if (!j.is_array()) fail<checkpoint_error>(what, " is no list");
        value.clear();
        for (const auto& each : j) {
            typename T::value_type read{};
            from_json(each, read, what);
            value.push_back(std::move(read));
        }
    }
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
