// SPDX-License-Identifier: MIT
/// \file
/// Numbers of one byte in the vectors of every instruction set, compared with the conversions of number/.
#include <cstdint>
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/exec/cpu/cpu.hpp>
#include <halftone/exec/cpu/simd.hpp>
#include <halftone/number.hpp>

#include "support/each_set.hpp"
#include "support/guarded.hpp"

#define HALFTONE_BODY "exec/cpu/float8.simd.hpp"
#include <halftone/exec/cpu/each_set.hpp>

#define BODY(name) device.select(&ht::portable::name, &ht::avx2::name, &ht::avx512::name)

namespace {

namespace ht = halftone;
using ht::float8_e4m3;
using ht::float8_e5m2;
using support::guarded;

float float_of(std::uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

/// The same bits.
template <class T>
bool same(const T& a, const T& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

TEST_CASE_TEMPLATE("simd: every code of a number of one byte", T, float8_e4m3, float8_e5m2) {
    support::for_each_set([](ht::isa set) {
        ht::cpu device{{.threads = 1, .instruction_set = set}};
        for (const int n : {256, 1, 3, 5, 7, 13, 15, 17, 31}) {
            const guarded<T> codes(n);
            const guarded<float> values(n);
            for (int i = 0; i < n; ++i) codes[i] = T::from_bits(static_cast<std::uint8_t>(i + (n < 256 ? 0x71 : 0)));
            BODY(float8_widen<T>)(codes.data(), values.data(), n);
            int wrong = 0;
            for (int i = 0; i < n; ++i) wrong += same(values[i], static_cast<float>(codes[i])) ? 0 : 1;
            CHECK(wrong == 0);
            CHECK(values.intact());
        }
    });
}

TEST_CASE_TEMPLATE("simd: floats to numbers of one byte, with and without saturation", T, float8_e4m3, float8_e5m2) {
    std::vector<float> inputs;
    for (int h = 0; h < 0x10000; ++h) {  // all types of two bytes, halfway points among them, and their neighbours
        for (const float x : {static_cast<float>(ht::float16::from_bits(static_cast<std::uint16_t>(h))),
                              static_cast<float>(ht::bfloat16::from_bits(static_cast<std::uint16_t>(h)))}) {
            std::uint32_t bits;
            std::memcpy(&bits, &x, sizeof bits);
            for (const std::uint32_t ulp : {0u, 1u, ~0u}) inputs.push_back(float_of(bits + ulp));
        }
    }
    for (const int n : {static_cast<int>(inputs.size()), 1, 3, 5, 15, 17}) {
        support::for_each_set([&](ht::isa set) {
            ht::cpu device{{.threads = 1, .instruction_set = set}};
            const guarded<T> found(n), stopped(n);
            const guarded<float> rounded(n);
            const float* from = inputs.data() + (n < 100 ? 0x30000 : 0);
            BODY(float8_narrow<T>)(from, found.data(), stopped.data(), rounded.data(), n);
            int wrong = 0;
            for (int i = 0; i < n; ++i) {
                const T expected(from[i]);
                const bool right = same(found[i], expected) && same(stopped[i], ht::saturate<T>(from[i])) &&
                                   same(rounded[i], static_cast<float>(expected));
                wrong += right ? 0 : 1;
            }
            CHECK(wrong == 0);
            CHECK(found.intact());
            CHECK(stopped.intact());
            CHECK(rounded.intact());
        });
    }
}

}  // namespace
