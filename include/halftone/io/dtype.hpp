// SPDX-License-Identifier: MIT
/// \file
/// The number types that files store, as run-time values, and conversions between them.
///
///     ht::dtype_of<ht::bfloat16> == ht::dtype::bf16;    ht::name(ht::dtype::bf16);       // "BF16", as in safetensors
///     ht::convert(ht::dtype::bf16, from, ht::dtype::f32, to, count);
///
/// Numeric contract: each number is rounded once, to nearest even; a number beyond the largest one becomes what the
/// type's constructor gives (an infinity, where there is one). Integers are not converted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

#include <halftone/error.hpp>
#include <halftone/number/bfloat16.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/number/float8.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The type of a stored tensor's elements: the 22 of safetensors 0.8. Those from c64 on have no C++ type here: files with
/// them are opened, and their bytes are copied, but not converted.
enum class dtype : unsigned char {
    boolean,
    u8,
    i8,
    f8_e5m2,
    f8_e4m3,
    i16,
    u16,
    f16,
    bf16,
    i32,
    u32,
    f32,
    f64,
    i64,
    u64,
    c64,
    f8_e8m0,
    f8_e4m3fnuz,
    f8_e5m2fnuz,
    f6_e2m3,
    f6_e3m2,
    f4
};

namespace detail {

struct dtype_entry {
    const char* name;  ///< as in safetensors
    std::size_t bits;
    bool is_float;
};
inline constexpr dtype_entry dtype_entries[]{
    {"BOOL", 8, false},    {"U8", 8, false},          {"I8", 8, false},          {"F8_E5M2", 8, true},
    {"F8_E4M3", 8, true},  {"I16", 16, false},        {"U16", 16, false},        {"F16", 16, true},
    {"BF16", 16, true},    {"I32", 32, false},        {"U32", 32, false},        {"F32", 32, true},
    {"F64", 64, true},     {"I64", 64, false},        {"U64", 64, false},        {"C64", 64, false},
    {"F8_E8M0", 8, false}, {"F8_E4M3FNUZ", 8, false}, {"F8_E5M2FNUZ", 8, false}, {"F6_E2M3", 6, false},
    {"F6_E3M2", 6, false}, {"F4", 4, false}};
inline constexpr int dtypes = sizeof dtype_entries / sizeof dtype_entries[0];

constexpr const dtype_entry& entry_of(dtype t) { return dtype_entries[static_cast<int>(t)]; }

/// Whether a C++ type has these elements.
constexpr bool has_cpp_type(dtype t) { return t < dtype::c64; }

template <class T>
inline constexpr int integer_dtype =
    sizeof(T) == 1   ? static_cast<int>(std::is_signed_v<T> ? dtype::i8 : dtype::u8)
    : sizeof(T) == 2 ? static_cast<int>(std::is_signed_v<T> ? dtype::i16 : dtype::u16)
    : sizeof(T) == 4 ? static_cast<int>(std::is_signed_v<T> ? dtype::i32 : dtype::u32)
                     : static_cast<int>(std::is_signed_v<T> ? dtype::i64 : dtype::u64);

template <class T>
constexpr int find_dtype() {
    if constexpr (std::is_same_v<T, bool>) return static_cast<int>(dtype::boolean);
    else if constexpr (std::is_integral_v<T>) return integer_dtype<T>;
    else if constexpr (std::is_same_v<T, float>) return static_cast<int>(dtype::f32);
    else if constexpr (std::is_same_v<T, double>) return static_cast<int>(dtype::f64);
    else if constexpr (std::is_same_v<T, float16>) return static_cast<int>(dtype::f16);
    else if constexpr (std::is_same_v<T, bfloat16>) return static_cast<int>(dtype::bf16);
    else if constexpr (std::is_same_v<T, float8_e4m3>) return static_cast<int>(dtype::f8_e4m3);
    else if constexpr (std::is_same_v<T, float8_e5m2>) return static_cast<int>(dtype::f8_e5m2);
    else return -1;
}

}  // namespace detail

/// The name of a type in safetensors files: "F32", "BF16", ...
constexpr const char* name(dtype t) { return detail::entry_of(t).name; }
/// The bits of an element: 4 or 6 for types whose elements are packed.
constexpr std::size_t bits_of(dtype t) { return detail::entry_of(t).bits; }
/// The bytes of an element. Throws argument_error for a type whose elements are packed.
constexpr std::size_t size_of(dtype t) {
    if (bits_of(t) % 8 != 0) fail<argument_error>("size_of: an element of ", name(t), " has ", bits_of(t), " bits");
    return bits_of(t) / 8;
}
/// Whether the type holds floating-point numbers that ht::convert knows.
constexpr bool is_float(dtype t) { return detail::entry_of(t).is_float; }

/// A C++ type that files store: bool, integers, float, double, and halftone's 16-bit and 8-bit numbers.
template <class T>
concept stored_type = detail::find_dtype<T>() >= 0;

/// The dtype of a C++ type.
template <stored_type T>
inline constexpr dtype dtype_of = static_cast<dtype>(detail::find_dtype<T>());

namespace detail {

/// The dtype with this name in safetensors files; -1 if there is none.
inline int dtype_named(std::string_view text) {
    for (int i = 0; i < dtypes; ++i) {
        if (text == dtype_entries[i].name) return i;
    }
    return -1;
}
/// The dtype of a number type of the store, by the name in its traits; -1 for a user's own type.
inline int dtype_of_number(std::string_view text) {
    struct known {
        const char* name;
        dtype type;
    };
    constexpr known all[]{{number_traits<float>::name, dtype::f32},
                          {number_traits<double>::name, dtype::f64},
                          {number_traits<float16>::name, dtype::f16},
                          {number_traits<bfloat16>::name, dtype::bf16},
                          {number_traits<float8_e4m3>::name, dtype::f8_e4m3},
                          {number_traits<float8_e5m2>::name, dtype::f8_e5m2}};
    for (const known& k : all) {
        if (text == k.name) return static_cast<int>(k.type);
    }
    return -1;
}

/// Calls f.template operator()<T>() with the floating-point type of a dtype.
template <class F>
void with_float_type(dtype t, const F& f) {
    switch (t) {
        case dtype::f8_e5m2: return f.template operator()<float8_e5m2>();
        case dtype::f8_e4m3: return f.template operator()<float8_e4m3>();
        case dtype::f16: return f.template operator()<float16>();
        case dtype::bf16: return f.template operator()<bfloat16>();
        case dtype::f32: return f.template operator()<float>();
        case dtype::f64: return f.template operator()<double>();
        default: fail<argument_error>("convert: ", name(t), " is not a floating-point type");
    }
}

/// The commonest of all conversions, in a loop that compilers make a vector's.
inline void widen_bfloat16(const std::byte* values, std::byte* results, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        std::uint16_t bits;
        std::memcpy(&bits, values + i * sizeof bits, sizeof bits);
        const std::uint32_t wide = float_from_bfloat16(bits);
        std::memcpy(results + i * sizeof wide, &wide, sizeof wide);
    }
}

}  // namespace detail

/// Converts `count` numbers from one floating-point type to another; the memory of both may have any alignment, and must
/// not overlap. Equal types are copied, unless their elements are packed. Throws argument_error for all others.
inline void convert(dtype from, const std::byte* values, dtype to, std::byte* results, std::size_t count) {
    if (from == to) {
        if (count != 0) std::memcpy(results, values, count * size_of(to));
        return;
    }
    if (from == dtype::bf16 && to == dtype::f32) return detail::widen_bfloat16(values, results, count);
    detail::with_float_type(from, [&]<class From>() {
        detail::with_float_type(to, [&]<class To>() {
            using wide = std::conditional_t<std::is_same_v<From, double>, double, float>;
            for (std::size_t i = 0; i < count; ++i) {
                From x;
                std::memcpy(&x, values + i * sizeof(From), sizeof(From));
                const To y = static_cast<To>(static_cast<wide>(x));
                std::memcpy(results + i * sizeof(To), &y, sizeof(To));
            }
        });
    });
}

}  // namespace HALFTONE_ABI
}  // namespace halftone
