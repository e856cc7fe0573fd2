// SPDX-License-Identifier: MIT
/// \file
/// Tokens of every width, split and checked against a vocabulary.
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/data/tokens.hpp>

namespace data_tokens_tests {

namespace ht = halftone;

TEST_CASE("ids of every width come out as they went in") {
    const std::vector<std::uint8_t> bytes{0, 7, 255};
    const std::vector<std::uint16_t> words{0, 50256, 65535};
    const std::vector<std::int32_t> ids{0, 1 << 30, -1};
    const std::string text = "\xff\x01";
    CHECK(ht::token_view{text}[0] == 255);
    CHECK(ht::token_view{text}.size() == 2);
    CHECK(ht::token_view{std::span(bytes)}[2] == 255);
    CHECK(ht::token_view{std::span(words)}[1] == 50256);
    CHECK(ht::token_view{std::span(words)}.part(1, 2)[1] == 65535);
    CHECK(ht::token_view{std::span(ids)}[2] == -1);
    std::int32_t to[2];
    ht::token_view{std::span(ids)}.copy(1, 2, to);
    CHECK(to[0] == 1 << 30);
    CHECK(to[1] == -1);
}

TEST_CASE("the end of the corpus is held out") {
    std::vector<std::int32_t> ids(100);
    for (int i = 0; i < 100; ++i) ids[static_cast<std::size_t>(i)] = i;
    const ht::token_view all{std::span<const std::int32_t>(ids)};
    const auto [training, validation] = ht::hold_out(all, 0.1);
    CHECK(training.size() == 90);
    CHECK(validation.size() == 10);
    CHECK(training[89] == 89);
    CHECK(validation[0] == 90);
    CHECK(ht::hold_out(all, 0.0).validation.size() == 0);
    CHECK(ht::hold_out(all, 0.999).training.size() == 1);
    CHECK_THROWS_AS(ht::hold_out(all, 1.0), ht::argument_error);
    CHECK_THROWS_AS(ht::hold_out(all, -0.1), ht::argument_error);
    CHECK_THROWS_AS(ht::hold_out(all, 0.0 / 0.0), ht::argument_error);
}

TEST_CASE("a token outside the vocabulary is found wherever it stands") {
    std::vector<std::uint16_t> ids(5000, 9);
    const auto check = [&](ht::extent vocabulary) {
        ht::check_tokens(ht::token_view{std::span<const std::uint16_t>(ids)}, vocabulary);
    };
    CHECK_NOTHROW(check(10));
    for (const std::size_t place : {0u, 1023u, 1024u, 4999u}) {
        ids[place] = 10;
        CHECK_THROWS_WITH_AS(check(10),
                             ("tokens: number " + std::to_string(place) + " is 10; the vocabulary has 0 to 9").c_str(),
                             ht::data_error);
        ids[place] = 9;
    }
    const std::vector<std::int32_t> negative{3, -1};
    CHECK_THROWS_AS(ht::check_tokens(ht::token_view{std::span(negative)}, 10), ht::data_error);
}

}  // namespace data_tokens_tests
