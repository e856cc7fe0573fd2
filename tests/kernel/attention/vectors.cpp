// SPDX-License-Identifier: MIT
/// \file
/// Attention's powers of two, and the rounding of operands, on vectors of every instruction set.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/attention/cpu.hpp>
#include <halftone/number/classify.hpp>

#include "support/bounds.hpp"
#include "support/each_set.hpp"

#define HALFTONE_BODY "kernel/attention/vectors.simd.hpp"
#include <halftone/exec/cpu/each_set.hpp>

namespace {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;

TEST_CASE("powers of two are within 4 units of 2^-24, and zero below 2^-126") {
    // Every 997th float from -126 up to 1, and negative ones of any size.
    std::vector<float> x;
    for (std::uint32_t bits = 0x80000000u; bits < std::bit_cast<std::uint32_t>(-126.0f); bits += 997) {
        x.push_back(std::bit_cast<float>(bits));
    }
    for (std::uint32_t bits = 0; bits < std::bit_cast<std::uint32_t>(1.0f); bits += 997) {
        x.push_back(std::bit_cast<float>(bits));
    }
    for (const float edge : {-126.0f, -125.5f, -0.5f, 0.5f, 1.0f, 1.5f, 63.75f}) x.push_back(edge);
    const std::size_t positive = x.size();
    for (const float low : {std::nextafter(-126.0f, -127.0f), -126.5f, -127.0f, -149.0f, -1e4f, -3e9f, -3e38f}) {
        x.push_back(low);
    }
    const std::size_t count = x.size();
    x.resize((count + 63) / 64 * 64);
    std::vector<float> y(x.size());

    support::for_each_set([&](ht::isa set) {
        const ht::cpu device{{.threads = 1, .instruction_set = set}};
        const auto body = device.select(&ht::portable::attention_powers_of, &ht::avx2::attention_powers_of,
                                        &ht::avx512::attention_powers_of);
        body(x.data(), y.data(), static_cast<extent>(x.size()));
        support::comparison powers;
        for (std::size_t i = 0; i < positive; ++i) {
            const double want = std::exp2(static_cast<double>(x[i]));
            powers.expect(static_cast<double>(y[i]), want, 4 * support::u * want);
        }
        CHECK_WITHIN(powers);
        for (std::size_t i = positive; i < count; ++i) CHECK(y[i] == 0);
        CHECK(y[0] == 1);

        const std::vector<float> nan(64, std::numeric_limits<float>::quiet_NaN());
        body(nan.data(), y.data(), 64);
        CHECK(ht::is_nan(y[0]));
        CHECK(ht::is_nan(y[63]));
    });
}

template <class T>
void rounds_as_its_constructor() {
    // All exponents, all patterns around the ties of both 16-bit types.
    std::vector<float> x;
    for (std::uint32_t high = 0; high < 0x10000; ++high) {
        for (const std::uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u,
                                        0xefffu, 0xf000u, 0xf001u, 0xffffu, 0x1800u, 0x2fffu, 0x5000u}) {
            x.push_back(std::bit_cast<float>(high << 16 | low));
        }
    }
    std::vector<float> y(x.size());
    support::for_each_set([&](ht::isa set) {
        const ht::cpu device{{.threads = 1, .instruction_set = set}};
        device.select(&ht::portable::attention_rounded<T>, &ht::avx2::attention_rounded<T>,
                      &ht::avx512::attention_rounded<T>)(x.data(), y.data(), static_cast<extent>(x.size()));
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
            const float want = static_cast<float>(static_cast<T>(x[i]));
            const bool same = ht::is_nan(want) ? ht::is_nan(y[i]) : std::memcmp(&want, &y[i], sizeof want) == 0;
            wrong += same ? 0 : 1;
        }
        CHECK(wrong == 0);
    });
}

TEST_CASE("vectors round to 16 bits as single numbers do") {
    SUBCASE("bfloat16") { rounds_as_its_constructor<bfloat16>(); }
    SUBCASE("float16") { rounds_as_its_constructor<float16>(); }
    SUBCASE("float") { rounds_as_its_constructor<float>(); }
}

}  // namespace
