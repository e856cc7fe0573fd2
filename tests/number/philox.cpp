// SPDX-License-Identifier: MIT
/// \file
/// Philox4x32-10, compared with the known answers that its authors published, and the numbers made from it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include <doctest/doctest.h>

#include <halftone/number/normal.hpp>
#include <halftone/number/philox.hpp>

namespace number_philox_tests {

namespace ht = halftone;
using ht::philox;

// Random123 1.14, tests/kat_vectors, lines "philox4x32 10".
static_assert(philox::generate({{0, 0, 0, 0}}, {{0, 0}}) ==
              philox::block{{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
static_assert(philox::generate({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, {{0xffffffff, 0xffffffff}}) ==
              philox::block{{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
static_assert(philox::generate({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {{0xa4093822, 0x299f31d0}}) ==
              philox::block{{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});

TEST_CASE("philox: known answers at run time") {
    volatile std::uint32_t zero = 0;  // so that the compiler cannot do it
    const philox::block x = philox::generate({{zero, zero, zero, zero}}, {{zero, zero}});
    CHECK(x[0] == 0x6627e8d5);
    CHECK(x[1] == 0xe169c58d);
    CHECK(x[2] == 0xbc57ac4c);
    CHECK(x[3] == 0x9b00dbd8);
}

TEST_CASE("random_bits: seed, step, tensor and index each have their place in counter and key") {
    constexpr std::uint64_t seed = 0x299f31d0a4093822, index = 0x123456789a;
    static_assert(ht::random_block(seed, 0x03707344, 0x13198a2e, 0x85a308d3243f6a88) ==
                  philox::block{{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
    static_assert(ht::random_bits(0, 0, 0, 0) == 0x6627e8d5 && ht::random_bits(0, 0, 0, 3) == 0x9b00dbd8);
    static_assert(ht::random_bits(seed, 1, 2, index) == ht::random_block(seed, 1, 2, index / 4)[2]);
    for (std::uint64_t i = 0; i < 64; ++i) {
        CHECK(ht::random_bits(5, 6, 7, i) == ht::random_block(5, 6, 7, i / 4)[static_cast<unsigned>(i % 4)]);
    }
}

TEST_CASE("random_bits: neighbours in any argument differ") {
    // 4 * 4 * 4 * 64 words; that two of 4096 agree has a chance of 0.2 %, and the counters are fixed.
    std::set<std::uint32_t> words;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
        for (std::uint32_t step = 0; step < 4; ++step) {
            for (std::uint32_t tensor = 0; tensor < 4; ++tensor) {
                for (std::uint64_t i = 0; i < 64; ++i) words.insert(ht::random_bits(seed, step, tensor, i));
            }
        }
    }
    CHECK(words.size() == 4096);
    // The upper halves of seed and index count too.
    CHECK(ht::random_bits(1, 0, 0, 0) != ht::random_bits(1 + (1ull << 32), 0, 0, 0));
    CHECK(ht::random_bits(1, 0, 0, 0) != ht::random_bits(1, 0, 0, 1ull << 34));
}

TEST_CASE("uniform: multiples of 2^-24 in [0, 1), evenly") {
    static_assert(ht::uniform(0) == 0 && ht::uniform(255) == 0 && ht::uniform(256) == 0x1p-24f);
    static_assert(ht::uniform(0xffffffff) == 1 - 0x1p-24f && ht::uniform(0x80000000) == 0.5f);
    constexpr int bins = 64, share = 4096;
    int count[bins] = {};
    for (std::uint32_t i = 0; i < bins * share; ++i) {
        ++count[static_cast<int>(ht::uniform(ht::random_bits(1, 2, 3, i)) * bins)];
    }
    double chi_square = 0;
    for (const int c : count) chi_square += std::pow(c - share, 2) / share;
    // 63 degrees of freedom: mean 63, variance 126; six standard deviations.
    CHECK(std::fabs(chi_square - 63) < 6 * std::sqrt(126.0));
}

TEST_CASE("normal: its formula, its ends and its moments") {
    CHECK(ht::normal(0xffffffff, 12345).first == 0);  // u = 1, radius 0
    CHECK(ht::normal(0, 0).first == static_cast<float>(std::sqrt(64 * std::log(2.0))));
    CHECK(ht::normal(0, 0).second == 0);
    CHECK(ht::normal(0, 0x80000000).first == -ht::normal(0, 0).first);
    CHECK(ht::normal(0, 0x40000000).second == ht::normal(0, 0).first);

    constexpr int pairs = 1 << 17, n = 2 * pairs;
    double sum[5] = {}, product = 0;
    for (std::uint32_t i = 0; i < pairs; ++i) {
        const philox::block words = ht::random_block(9, 0, 0, i);
        const ht::normal_pair pair = ht::normal(words[0], words[1]);
        for (const double x : {pair.first, pair.second}) {
            for (int power = 1; power <= 4; ++power) sum[power] += std::pow(x, power);
        }
        product += static_cast<double>(pair.first) * pair.second;
    }
    // E x^k = 0, 1, 0, 3 with variances 1, 2, 15, 96; each mean within six standard errors.
    const double expected[5] = {0, 0, 1, 0, 3}, variance[5] = {0, 1, 2, 15, 96};
    for (int power = 1; power <= 4; ++power) {
        CAPTURE(power);
        CHECK(std::fabs(sum[power] / n - expected[power]) < 6 * std::sqrt(variance[power] / n));
    }
    CHECK(std::fabs(product / pairs) < 6 / std::sqrt(pairs));
}

}  // namespace number_philox_tests
