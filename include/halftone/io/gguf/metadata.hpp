// SPDX-License-Identifier: MIT
/// \file
/// The keys of a GGUF file and their values.
///
///     const ht::gguf_metadata& keys = file.metadata();
///     keys.text("general.architecture");                // "llama"; throws gguf_error if it is missing, or no text
///     keys.integer("llama.context_length", 2048);       // 2048 if it is missing
///     keys.texts("tokenizer.ggml.tokens");              // an array
///     const ht::gguf_keys written{{"llama.context_length", ht::gguf_value_of(std::uint32_t{2048})}};    // for ht::write_gguf
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <halftone/io/io_error.hpp>
#include <halftone/io/strict_json.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The types of values in a GGUF file, by their numbers there.
enum class gguf_value_type : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text, array, u64, i64, f64 };

/// A value of a GGUF file: a number, a bool, a text, or an array of one of these.
struct gguf_value {
    gguf_value_type type = gguf_value_type::u32;  ///< of an array its elements'
    bool is_array = false;
    std::uint64_t count = 1;           ///< the elements of an array
    std::string bytes{};               ///< numbers and bools as in the file, or a text
    std::vector<std::string> texts{};  ///< the elements of an array of texts
};
/// Keys of a GGUF file and their values.
using gguf_keys = std::map<std::string, gguf_value>;

namespace detail {

/// The type in a GGUF file of numbers of a type of C++, or of bools.
template <class T>
constexpr gguf_value_type gguf_type_of() {
    if constexpr (std::is_same_v<T, bool>) return gguf_value_type::boolean;
    if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? gguf_value_type::f32 : gguf_value_type::f64;
    constexpr gguf_value_type types[]{gguf_value_type::u8,  gguf_value_type::i8,  gguf_value_type::u16,
                                      gguf_value_type::i16, gguf_value_type::u32, gguf_value_type::i32,
                                      gguf_value_type::u64, gguf_value_type::i64};
    constexpr int place = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 2 : sizeof(T) == 4 ? 4 : 6;
    return types[place + (std::is_signed_v<T> ? 1 : 0)];
}

}  // namespace detail

/// A number, of the type that it has in C++, or a bool, as a value of a GGUF file.
template <class T>
    requires std::is_arithmetic_v<T> gguf_value gguf_value_of(T x) {
        return {.type = detail::gguf_type_of<T>(), .bytes = std::string(reinterpret_cast<const char*>(&x), sizeof x)};
    }
/// A text as a value of a GGUF file.
inline gguf_value gguf_value_of(std::string text) { return {.type = gguf_value_type::text, .bytes = std::move(text)}; }
/// An array of numbers as a value of a GGUF file.
template <class T>
    requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
gguf_value gguf_value_of(const std::vector<T>& all) {
    return {.type = detail::gguf_type_of<T>(),
            .is_array = true,
            .count = all.size(),
            .bytes = std::string(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(T))};
}
/// An array of texts as a value of a GGUF file.
inline gguf_value gguf_value_of(std::vector<std::string> texts) {
    const std::uint64_t count = texts.size();
    return {.type = gguf_value_type::text, .is_array = true, .count = count, .texts = std::move(texts)};
}

namespace detail {

struct gguf_value_entry {
    const char* name;   ///< in a sentence
    std::size_t bytes;  ///< of an element in the file, at least
};
inline constexpr gguf_value_entry gguf_value_entries[]{{"U8", 1},  {"I8", 1},  {"U16", 2},  {"I16", 2},  {"U32", 4},
                                                       {"I32", 4}, {"F32", 4}, {"bool", 1}, {"text", 8}, {"array", 12},
                                                       {"U64", 8}, {"I64", 8}, {"F64", 8}};
constexpr std::uint32_t gguf_value_types = sizeof gguf_value_entries / sizeof gguf_value_entries[0];

/// "an array of 3 U32"
inline std::string gguf_kind(const gguf_value& v) {
    const char* const name = gguf_value_entries[static_cast<std::size_t>(v.type)].name;
    return v.is_array ? "an array of " + std::to_string(v.count) + ' ' + name : std::string(name);
}

template <class T>
T gguf_element(const gguf_value& v, std::uint64_t i) {
    T x;
    std::memcpy(&x, v.bytes.data() + i * sizeof x, sizeof x);
    return x;
}
/// Element i as an integer; none if the value's type is another, or the integer 2^63 or more.
inline std::optional<std::int64_t> gguf_integer(const gguf_value& v, std::uint64_t i) {
    switch (v.type) {
        case gguf_value_type::u8:
            return gguf_element<std::uint8_t>(v, i);
        case gguf_value_type::i8:
            return gguf_element<std::int8_t>(v, i);
        case gguf_value_type::u16:
            return gguf_element<std::uint16_t>(v, i);
        case gguf_value_type::i16:
            return gguf_element<std::int16_t>(v, i);
        case gguf_value_type::u32:
            return gguf_element<std::uint32_t>(v, i);
        case gguf_value_type::i32:
            return gguf_element<std::int32_t>(v, i);
        case gguf_value_type::i64:
            return gguf_element<std::int64_t>(v, i);
        case gguf_value_type::u64: {
            const auto x = gguf_element<std::uint64_t>(v, i);
            if (x <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
                return static_cast<std::int64_t>(x);
            return std::nullopt;
        }
        default:
            return std::nullopt;
    }
}
/// Element i as a finite number; none if the value's type is another.
inline std::optional<double> gguf_number(const gguf_value& v, std::uint64_t i) {
    if (const auto x = gguf_integer(v, i)) return static_cast<double>(*x);
    double x = std::numeric_limits<double>::infinity();
    if (v.type == gguf_value_type::f32) x = static_cast<double>(gguf_element<float>(v, i));
    if (v.type == gguf_value_type::f64) x = gguf_element<double>(v, i);
    return std::isfinite(x) ? std::optional<double>(x) : std::nullopt;
}

}  // namespace detail

/// The keys of a GGUF file. Functions with a second argument return it where the key is missing; all throw gguf_error, with the file and
/// the key, where it is missing without one, or has a value of another kind.
class gguf_metadata {
  public:
    gguf_metadata() = default;
    /// `where` begins the messages.
    gguf_metadata(std::string where, gguf_keys values) : where_(std::move(where)), values_(std::move(values)) {}

    const std::string& where() const { return where_; }
    /// All keys, by name.
    const gguf_keys& values() const { return values_; }
    /// Whether the file has this key.
    bool has(const std::string& key) const { return values_.count(key) != 0; }

    /// A text, which may be any bytes.
    std::string text(const std::string& key, const std::optional<std::string>& otherwise = std::nullopt) const {
        if (!is_given(key, otherwise.has_value())) return *otherwise;
        const gguf_value& v = values_.at(key);
        if (v.is_array || v.type != gguf_value_type::text) refuse(key, v, "a text");
        return v.bytes;
    }
    /// Any integer below 2^63.
    std::int64_t integer(const std::string& key, std::optional<std::int64_t> otherwise = std::nullopt) const {
        if (!is_given(key, otherwise.has_value())) return *otherwise;
        const gguf_value& v = values_.at(key);
        const auto x = v.is_array ? std::nullopt : detail::gguf_integer(v, 0);
        if (!x) refuse(key, v, "an integer below 2^63");
        return *x;
    }
    /// An integer or a finite floating-point number.
    double number(const std::string& key, std::optional<double> otherwise = std::nullopt) const {
        if (!is_given(key, otherwise.has_value())) return *otherwise;
        const gguf_value& v = values_.at(key);
        const auto x = v.is_array ? std::nullopt : detail::gguf_number(v, 0);
        if (!x) refuse(key, v, "a finite number");
        return *x;
    }
    /// A bool.
    bool flag(const std::string& key, std::optional<bool> otherwise = std::nullopt) const {
        if (!is_given(key, otherwise.has_value())) return *otherwise;
        const gguf_value& v = values_.at(key);
        if (v.is_array || v.type != gguf_value_type::boolean) refuse(key, v, "a bool");
        return v.bytes[0] != 0;
    }
    /// The elements of an array of texts; none where the key is missing.
    std::vector<std::string> texts(const std::string& key) const {
        if (!has(key)) return {};
        const gguf_value& v = values_.at(key);
        if (!v.is_array || v.type != gguf_value_type::text) refuse(key, v, "an array of texts");
        return v.texts;
    }
    /// The elements of an array of integers; none where the key is missing.
    std::vector<std::int64_t> integers(const std::string& key) const {
        return array<std::int64_t>(key, &detail::gguf_integer, "an array of integers below 2^63");
    }
    /// The elements of an array of numbers; none where the key is missing.
    std::vector<double> numbers(const std::string& key) const {
        return array<double>(key, &detail::gguf_number, "an array of finite numbers");
    }

  private:
    bool is_given(const std::string& key, bool has_other) const {
        if (has(key)) return true;
        if (!has_other) fail<gguf_error>(where_, ": ", key, " is missing");
        return false;
    }
    [[noreturn]] void refuse(const std::string& key, const gguf_value& v, const char* expected) const {
        fail<gguf_error>(where_, ": ", key, " is ", detail::gguf_kind(v), "; expected ", expected);
    }
    template <class T>
    std::vector<T> array(const std::string& key, std::optional<T> (*element)(const gguf_value&, std::uint64_t),
                         const char* expected) const {
        std::vector<T> all;
        if (!has(key)) return all;
        const gguf_value& v = values_.at(key);
        if (!v.is_array) refuse(key, v, expected);
        for (std::uint64_t i = 0; i < v.count; ++i) {
            const auto x = element(v, i);
            if (!x) refuse(key, v, expected);
            all.push_back(*x);
        }
        return all;
    }

    std::string where_;
    gguf_keys values_;
};

}  // namespace HALFTONE_ABI
}  // namespace halftone
