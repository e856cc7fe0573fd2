// SPDX-License-Identifier: MIT
/// \file
/// nf4 beside bitsandbytes and q8_0 beside gguf (golden/block_formats.py): codes and scales are the same; numbers differ where
/// bitsandbytes' dynamic map, which it computes in float, does.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/number/block_format.hpp>
#include <halftone/number/nf4.hpp>

#include "optim/golden.hpp"

namespace number_block_format_tests {

namespace ht = halftone;

/// The numbers of the script.
std::vector<float> numbers(std::size_t count, std::size_t seed) {
    std::vector<float> all;
    for (std::size_t k = 0; k < count; ++k) {
        const std::size_t n = (7919 * k + 31 * (k * k % 65536) + 104729 * seed) % 8191;
        const double x =
            (2.0 * static_cast<double>(n) - 8190) / 8192.0 * static_cast<double>(1 + k / 64 * 37 % 19) / 32.0;
        all.push_back(k / 64 % 23 == 11 ? 0.0f : static_cast<float>(x));
    }
    return all;
}

std::string hex(const std::byte* from, std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) {
        const auto byte = std::to_integer<unsigned>(from[i]);
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

template <class T>
T at(const std::vector<std::byte>& bytes, std::size_t position) {
    T value;
    std::memcpy(&value, bytes.data() + position, sizeof value);
    return value;
}

template <class Format>
std::vector<std::byte> encoded(const std::vector<float>& values) {
    std::vector<std::byte> codes(Format::bytes(values.size()));
    Format::encode(values.data(), values.size(), codes.data());
    return codes;
}

TEST_CASE("nf4: codes, scales and offset of bitsandbytes") {
    int tensors = 0;
    for (const support::golden_line& line : support::read_golden("block_formats.txt")) {
        if (line.kind != "nf4") continue;
        ++tensors;
        const auto count = static_cast<std::size_t>(line.number(0)), nested = static_cast<std::size_t>(line.number(3));
        CAPTURE(count);
        const auto codes = encoded<ht::nf4>(numbers(count, static_cast<std::size_t>(line.number(1))));
        CHECK(at<float>(codes, ht::nf4::offset_position()) == static_cast<float>(line.number(2)));
        REQUIRE(ht::nf4::nested_count(count) == nested);
        for (std::size_t i = 0; i < nested; ++i)
            CHECK(at<float>(codes, ht::nf4::nested_position() + i * sizeof(float)) ==
                  static_cast<float>(line.number(4 + i)));
        CHECK(hex(codes.data() + ht::nf4::codes_position(count), count / 2) == line.words[4 + nested]);
        CHECK(hex(codes.data() + ht::nf4::absmax_position(count), count / ht::nf4::block) == line.words[5 + nested]);
        std::vector<float> decoded(count);
        ht::nf4::decode(codes.data(), count, 0, count, decoded.data());
        for (std::size_t i = 0; i < count; i += 61) {
            // A unit or two in the last place of the map's value, times a nested scale of less than 1, and a rounding.
            const double theirs = line.number(6 + nested + i / 61);
            CHECK(std::fabs(static_cast<double>(decoded[i]) - theirs) <= 3 * 0x1p-24);
        }
    }
    CHECK(tensors == 3);
}

TEST_CASE("q8_0: the bytes of gguf") {
    for (const support::golden_line& line : support::read_golden("block_formats.txt")) {
        if (line.kind != "q8_0") continue;
        const auto count = static_cast<std::size_t>(line.number(0));
        const auto codes = encoded<ht::q8_0>(numbers(count, static_cast<std::size_t>(line.number(1))));
        CHECK(hex(codes.data(), codes.size()) == line.words[2]);
    }
}

/// Any part of a tensor has the numbers of the whole.
template <class Format>
void expect_parts() {
    const std::size_t count = 64 * 5;
    const auto codes = encoded<Format>(numbers(count, 1));
    std::vector<float> all(count), part(count);
    Format::decode(codes.data(), count, 0, count, all.data());
    for (std::size_t first = 0; first < count; first += 7) {
        for (std::size_t n = 0; first + n <= count; n += 13) {
            Format::decode(codes.data(), count, first, n, part.data());
            REQUIRE(std::equal(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(n),
                               all.begin() + static_cast<std::ptrdiff_t>(first)));
        }
    }
}
TEST_CASE("Block formats: a part of a tensor has the numbers of the whole") {
    expect_parts<ht::q8_0>();
    expect_parts<ht::nf4>();
}

TEST_CASE("nf4: half an interval between values at most, and zeros stay zeros") {
    const std::size_t count = 64 * 40;
    const auto values = numbers(count, 9);
    const auto codes = encoded<ht::nf4>(values);
    std::vector<float> decoded(count);
    ht::nf4::decode(codes.data(), count, 0, count, decoded.data());
    for (std::size_t i = 0; i < count; ++i) {
        const auto block = values.begin() + static_cast<std::ptrdiff_t>(i / 64 * 64);
        double largest = 0;
        std::for_each(block, block + 64,
                      [&](float x) { largest = std::max(largest, std::fabs(static_cast<double>(x))); });
        // 0.152 is half of the widest interval, from -1 to -0.696; a scale in 8 bits is off by up to 0.02 of the largest one.
        CHECK(std::fabs(static_cast<double>(decoded[i] - values[i])) <= 0.152 * largest + 0.02 * 19 / 32);
    }
    const auto zeros = encoded<ht::nf4>(std::vector<float>(128, 0.0f));
    ht::nf4::decode(zeros.data(), 128, 0, 128, decoded.data());
    CHECK(std::all_of(decoded.begin(), decoded.begin() + 128, [](float x) { return x == 0; }));
}

TEST_CASE("q8_0: half a step at most, ties away from zero, and a d that float16 has no room for") {
    const std::size_t count = 32 * 20;
    const auto values = numbers(count, 4);
    const auto codes = encoded<ht::q8_0>(values);
    std::vector<float> decoded(count);
    ht::q8_0::decode(codes.data(), count, 0, count, decoded.data());
    for (std::size_t i = 0; i < count; ++i) {
        const auto block = values.begin() + static_cast<std::ptrdiff_t>(i / 32 * 32);
        double largest = 0;
        std::for_each(block, block + 32,
                      [&](float x) { largest = std::max(largest, std::fabs(static_cast<double>(x))); });
        CHECK(std::fabs(static_cast<double>(decoded[i] - values[i])) <= largest * (0.5 / 127 + 0x1p-11 + 0x1p-22));
    }
    std::vector<float> ties(32, 2.5f);
    ties[0] = 127, ties[1] = -2.5f;
    const auto whole = encoded<ht::q8_0>(ties);
    CHECK(static_cast<int>(static_cast<std::int8_t>(whole[2 + 1])) == -3);
    CHECK(static_cast<int>(static_cast<std::int8_t>(whole[2 + 2])) == 3);
    const auto small = encoded<ht::q8_0>(std::vector<float>(32, 1e-40f));
    CHECK(std::all_of(small.begin(), small.end(), [](std::byte b) { return b == std::byte{0}; }));
}

static_assert(ht::block_format<ht::q8_0> && ht::block_format<ht::nf4> && !ht::block_format<float>);
static_assert(ht::q8_0::bytes(64) == 68 && ht::nf4::bytes(128) == 64 + 64 + 2);

}  // namespace number_block_format_tests
