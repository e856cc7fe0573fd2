// SPDX-License-Identifier: MIT
/// \file
/// The number types of GGUF files (ggml's), and the numbers of their blocks as float.
///
///     ht::name(ht::ggml_type::q8_0);                                    // "Q8_0"
///     ht::detail::dequantise(ht::ggml_type::q8_0, blocks, 64, to);      // 64 numbers of two blocks
///
/// Q8_0: a block of 32 is a float16 d and 32 int8 q: d q. Q4_0: d and 16 bytes, whose low four bits are elements 0 to 15 and whose high
/// ones 16 to 31: d (q - 8). MXFP4, of OCP's microscaling formats: a scale of eight bits, 2^(code - 127), and 16 bytes in the same order,
/// each half a number of sign, two bits of exponent and one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4 or 6. All of these products are exact in
/// float but those of MXFP4 of 2^128 and more, which are infinity. As llama.cpp has it, minus 0 of MXFP4 is 0; the scale 255 is NaN.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <halftone/io/dtype.hpp>
#include <halftone/number/block_format.hpp>
#include <halftone/number/float16.hpp>
#include <halftone/tensor/shape.hpp>

namespace halftone {
inline namespace HALFTONE_ABI {

/// The number types of GGUF files. halftone converts f32, f16, bf16, q8_0, q4_0 and mxfp4.
enum class ggml_type : std::uint32_t {
    f32 = 0,
    f16 = 1,
    q4_0 = 2,
    q4_1 = 3,
    q5_0 = 6,
    q5_1 = 7,
    q8_0 = 8,
    q8_1 = 9,
    q2_k = 10,
    q3_k = 11,
    q4_k = 12,
    q5_k = 13,
    q6_k = 14,
    q8_k = 15,
    iq2_xxs = 16,
    iq2_xs = 17,
    iq3_xxs = 18,
    iq1_s = 19,
    iq4_nl = 20,
    iq3_s = 21,
    iq2_s = 22,
    iq4_xs = 23,
    i8 = 24,
    i16 = 25,
    i32 = 26,
    i64 = 27,
    f64 = 28,
    iq1_m = 29,
    bf16 = 30,
    tq1_0 = 34,
    tq2_0 = 35,
    mxfp4 = 39,
    nvfp4 = 40,
    q1_0 = 41
};

namespace detail {

struct ggml_type_entry {
    ggml_type type;
    const char* name;   ///< as in gguf's and llama.cpp's sources
    extent elements;    ///< of a block
    std::size_t bytes;  ///< of a block
};
inline constexpr ggml_type_entry ggml_type_entries[]{{ggml_type::f32, "F32", 1, 4},
                                                     {ggml_type::f16, "F16", 1, 2},
                                                     {ggml_type::q4_0, "Q4_0", 32, 18},
                                                     {ggml_type::q4_1, "Q4_1", 32, 20},
                                                     {ggml_type::q5_0, "Q5_0", 32, 22},
                                                     {ggml_type::q5_1, "Q5_1", 32, 24},
                                                     {ggml_type::q8_0, "Q8_0", 32, 34},
                                                     {ggml_type::q8_1, "Q8_1", 32, 40},
                                                     {ggml_type::q2_k, "Q2_K", 256, 84},
                                                     {ggml_type::q3_k, "Q3_K", 256, 110},
                                                     {ggml_type::q4_k, "Q4_K", 256, 144},
                                                     {ggml_type::q5_k, "Q5_K", 256, 176},
                                                     {ggml_type::q6_k, "Q6_K", 256, 210},
                                                     {ggml_type::q8_k, "Q8_K", 256, 292},
                                                     {ggml_type::iq2_xxs, "IQ2_XXS", 256, 66},
                                                     {ggml_type::iq2_xs, "IQ2_XS", 256, 74},
                                                     {ggml_type::iq3_xxs, "IQ3_XXS", 256, 98},
                                                     {ggml_type::iq1_s, "IQ1_S", 256, 50},
                                                     {ggml_type::iq4_nl, "IQ4_NL", 32, 18},
                                                     {ggml_type::iq3_s, "IQ3_S", 256, 110},
                                                     {ggml_type::iq2_s, "IQ2_S", 256, 82},
                                                     {ggml_type::iq4_xs, "IQ4_XS", 256, 136},
                                                     {ggml_type::i8, "I8", 1, 1},
                                                     {ggml_type::i16, "I16", 1, 2},
                                                     {ggml_type::i32, "I32", 1, 4},
                                                     {ggml_type::i64, "I64", 1, 8},
                                                     {ggml_type::f64, "F64", 1, 8},
                                                     {ggml_type::iq1_m, "IQ1_M", 256, 56},
                                                     {ggml_type::bf16, "BF16", 1, 2},
                                                     {ggml_type::tq1_0, "TQ1_0", 256, 54},
                                                     {ggml_type::tq2_0, "TQ2_0", 256, 66},
                                                     {ggml_type::mxfp4, "MXFP4", 32, 17},
                                                     {ggml_type::nvfp4, "NVFP4", 64, 36},
                                                     {ggml_type::q1_0, "Q1_0", 128, 18}};

/// The entry of the type with this number; nullptr if there is none.
constexpr const ggml_type_entry* find_ggml_type(std::uint32_t number) {
    for (const ggml_type_entry& e : ggml_type_entries) {
        if (static_cast<std::uint32_t>(e.type) == number) return &e;
    }
    return nullptr;
}
constexpr const ggml_type_entry& entry_of(ggml_type t) { return *find_ggml_type(static_cast<std::uint32_t>(t)); }

}  // namespace detail

/// The name of a type in ggml: "F32", "Q8_0", ...
constexpr const char* name(ggml_type t) { return detail::entry_of(t).name; }
/// Whether halftone converts numbers of this type.
constexpr bool is_converted(ggml_type t) {
    return t == ggml_type::f32 || t == ggml_type::f16 || t == ggml_type::bf16 || t == ggml_type::q8_0 ||
           t == ggml_type::q4_0 || t == ggml_type::mxfp4;
}
/// The type as which numbers of a type that halftone converts are read: its own, or F32 for blocks.
constexpr dtype converted_type(ggml_type t) {
    return t == ggml_type::f16 ? dtype::f16 : t == ggml_type::bf16 ? dtype::bf16 : dtype::f32;
}

namespace detail {

inline float ggml_half(const std::byte* from) {
    float16 d;
    std::memcpy(&d, from, sizeof d);
    return static_cast<float>(d);
}
/// The 32 numbers of a block of Q8_0.
inline void dequantise_q8_0(const std::byte* block, float* to) { q8_0::decode(block, q8_0::block, 0, q8_0::block, to); }
/// The 32 numbers of a block of Q4_0.
inline void dequantise_q4_0(const std::byte* block, float* to) {
    const float d = ggml_half(block);
    for (std::size_t i = 0; i < 16; ++i) {
        const int both = std::to_integer<int>(block[2 + i]);
        to[i] = d * static_cast<float>((both & 15) - 8);
        to[16 + i] = d * static_cast<float>((both >> 4) - 8);
    }
}
/// The scale of a block of MXFP4, of its eight bits.
inline float mxfp4_scale(unsigned code) {
    const std::uint32_t bits = code == 0 ? 0x00400000u : code == 255 ? 0x7fc00000u : code << 23;
    float scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return scale;
}
/// The 32 numbers of a block of MXFP4.
inline void dequantise_mxfp4(const std::byte* block, float* to) {
    constexpr std::array<float, 16> numbers{0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    const float scale = mxfp4_scale(std::to_integer<unsigned>(block[0]));
    for (std::size_t i = 0; i < 16; ++i) {
        const auto both = std::to_integer<std::size_t>(block[1 + i]);
        to[i] = scale * numbers[both & 15];
        to[16 + i] = scale * numbers[both >> 4];
    }
}

/// The numbers of whole blocks of Q8_0, Q4_0 or MXFP4.
inline void dequantise(ggml_type type, const std::byte* blocks, std::size_t count, float* to) {
    const ggml_type_entry& e = entry_of(type);
    void (*const of_block)(const std::byte*, float*) = type == ggml_type::q8_0   ? &dequantise_q8_0
                                                       : type == ggml_type::q4_0 ? &dequantise_q4_0
                                                                                 : &dequantise_mxfp4;
    const auto each = static_cast<std::size_t>(e.elements);
    for (std::size_t i = 0; i < count; i += each, blocks += e.bytes, to += each) of_block(blocks, to);
}

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone
