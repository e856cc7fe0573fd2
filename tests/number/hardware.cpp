// SPDX-License-Identifier: MIT
/// \file
/// The conversions, compared with the instructions VCVTPS2PH, VCVTPH2PS and VCVTNEPS2BF16 if the processor has them; in the suite
/// "full" (run it with --no-skip) for all 2^32 floats, with these and with the oracle's rounding boundaries. Compiles without
/// flags: each function names the instruction set that it needs.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/number.hpp>

#include "oracle.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#define ON_X86 1
#include <cpuid.h>
#include <immintrin.h>
#else
#define ON_X86 0
#endif

namespace number_hardware_tests {

using halftone::bfloat16;
using halftone::float16;

constexpr std::size_t block_size = 4096;  // of consecutive float patterns; divides 2^23
using block = std::array<std::uint16_t, block_size>;

#if ON_X86

bool has_f16c() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("avx") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool has_avx512_bf16() { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16"); }

__attribute__((target("avx2,f16c"))) void narrow_f16c(std::uint32_t first, block& out) {
    for (std::uint32_t i = 0; i < block_size; i += 8) {
        const __m256i bits =
            _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(first + i)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
        const __m128i half = _mm256_cvtps_ph(_mm256_castsi256_ps(bits), _MM_FROUND_TO_NEAREST_INT);
        std::memcpy(&out[i], &half, sizeof half);
    }
}

__attribute__((target("avx,f16c"))) void widen_f16c(const std::uint16_t* in, std::uint32_t* out) {
    __m128i half;
    std::memcpy(&half, in, sizeof half);
    const __m256 wide = _mm256_cvtph_ps(half);
    std::memcpy(out, &wide, sizeof wide);
}

__attribute__((target("avx512f,avx512bf16"))) void narrow_bf16(std::uint32_t first, block& out) {
    const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (std::uint32_t i = 0; i < block_size; i += 16) {
        const __m512i bits = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first + i)), count);
        const auto brain = _mm512_cvtneps_pbh(_mm512_castsi512_ps(bits));
        std::memcpy(&out[i], &brain, sizeof brain);
    }
}

#else

bool has_f16c() { return false; }
bool has_avx512_bf16() { return false; }
void narrow_f16c(std::uint32_t, block&) {}
void widen_f16c(const std::uint16_t*, std::uint32_t*) {}
void narrow_bf16(std::uint32_t, block&) {}

#endif

/// The patterns that the oracle gives to consecutive floats: finds the boundary to the next pattern, then only counts.
class walk {
  public:
    walk(oracle::format f, std::uint32_t first) : format_{f} {
        const std::uint32_t magnitude = first & 0x7fffffff;
        sign_ = static_cast<int>(first >> 16 & 0x8000);
        pattern_ = magnitude < 0x7f800000 ? oracle::pattern_of_float(f, magnitude) : f.infinity();
        last_ = last_of(pattern_);
    }

    void fill(std::uint32_t first, block& out) {
        for (std::uint32_t i = 0; i < block_size; ++i) {
            const std::uint32_t magnitude = (first + i) & 0x7fffffff;
            if (magnitude > 0x7f800000) {
                out[i] = static_cast<std::uint16_t>(oracle::pattern_of_float(format_, first + i));
                continue;
            }
            if (magnitude > last_) last_ = last_of(++pattern_);
            out[i] = static_cast<std::uint16_t>(sign_ | pattern_);
        }
    }

  private:
    /// The last float that rounds to pattern h: the halfway point to h + 1 where h is even, else the float before it.
    /// Halfway points are floats in both formats.
    std::uint32_t last_of(int h) const {
        if (h >= format_.infinity()) return 0x7f800000;
        const double halfway = (oracle::value(format_, h) + oracle::value(format_, h + 1)) / 2;
        return oracle::as_bits(static_cast<float>(halfway)) - static_cast<std::uint32_t>(h % 2);
    }

    oracle::format format_;
    int sign_, pattern_;
    std::uint32_t last_;
};

template <class T>
struct outcome {
    std::uint64_t blocks = 0, hardware_blocks = 0;
    std::string first_wrong;
};

/// `count` blocks of floats from pattern `first`, within one sign.
template <class T>
void convert_all(std::uint32_t first, std::uint32_t count, bool hardware, outcome<T>& result) {
    constexpr bool half = std::is_same_v<T, float16>;
    const oracle::format f = half ? oracle::half : oracle::brain;
    walk boundaries{f, first};
    block ours{}, expected{};
    const auto compare = [&](std::uint32_t start, const char* with) {
        for (std::uint32_t i = 0; i < block_size && result.first_wrong.empty(); ++i) {
            if (ours[i] == expected[i]) continue;
            oracle::tally t;
            t.expect(ours[i], expected[i], start + i);
            result.first_wrong = with + t.first;
        }
    };
    for (std::uint32_t n = 0; n < count; ++n) {
        const auto start = static_cast<std::uint32_t>(first + n * block_size);
        for (std::uint32_t i = 0; i < block_size; ++i) ours[i] = T(oracle::as_float(start + i)).bits();
        boundaries.fill(start, expected);
        if (ours != expected) compare(start, "oracle: ");
        ++result.blocks;
        // VCVTNEPS2BF16 takes subnormal floats for zero: leave them out.
        if (!hardware || (!half && (start & 0x7f800000) == 0)) continue;
        half ? narrow_f16c(start, expected) : narrow_bf16(start, expected);
        if (ours != expected) compare(start, "instruction: ");
        ++result.hardware_blocks;
    }
}

TEST_CASE("hardware: float16 to float is VCVTPH2PS, signalling NaNs included") {
    if (!has_f16c()) {
        MESSAGE("not checked: VCVTPH2PS (this processor lacks F16C)");
        return;
    }
    oracle::tally t;
    for (std::uint32_t h = 0; h < 0x10000; h += 8) {
        std::uint16_t in[8];
        std::uint32_t out[8];
        for (std::uint32_t i = 0; i < 8; ++i) in[i] = static_cast<std::uint16_t>(h + i);
        widen_f16c(in, out);
        for (std::uint32_t i = 0; i < 8; ++i) t.expect(oracle::as_bits(float16::from_bits(in[i])), out[i], h + i);
    }
    CHECK_TALLY(t);
}

template <class T>
void note_lack() {
    MESSAGE("not checked: an instruction's rounding (this processor lacks ", std::string(std::is_same_v<T, float16> ? "F16C" : "AVX512-BF16"), ")");
}

TEST_CASE_TEMPLATE("hardware: a sample of blocks of floats", T, float16, bfloat16) {
    const bool hardware = std::is_same_v<T, float16> ? has_f16c() : has_avx512_bf16();
    if (!hardware) note_lack<T>();
    outcome<T> result;
    for (std::uint32_t exponent = 0; exponent < 512; ++exponent) convert_all<T>(exponent << 23, 2, hardware, result);
    for (std::uint32_t n = 1; n < 1 << 20; n += 1009) convert_all<T>(n << 12, 1, hardware, result);
    INFO(result.first_wrong);
    CHECK(result.first_wrong.empty());
    CHECK(result.blocks > 2000);
    CHECK((!hardware || result.hardware_blocks > 1900));
}

TEST_SUITE_BEGIN("full");

TEST_CASE_TEMPLATE("all 2^32 floats" * doctest::skip(), T, float16, bfloat16) {
    const bool hardware = std::is_same_v<T, float16> ? has_f16c() : has_avx512_bf16();
    if (!hardware) note_lack<T>();
    outcome<T> result[2];
    std::thread negative{[&] { convert_all<T>(0x80000000, 1 << 19, hardware, result[1]); }};
    convert_all<T>(0, 1 << 19, hardware, result[0]);
    negative.join();
    for (const outcome<T>& half : result) {
        INFO(half.first_wrong);
        CHECK(half.first_wrong.empty());
        CHECK(half.blocks == 1 << 19);
        const std::uint64_t left_out = std::is_same_v<T, float16> ? 0 : (1 << 23) / block_size;
        CHECK(half.hardware_blocks == (hardware ? (1 << 19) - left_out : 0));
    }
}

TEST_SUITE_END();

}  // namespace number_hardware_tests
