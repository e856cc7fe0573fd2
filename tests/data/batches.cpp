// SPDX-License-Identifier: MIT
/// \file
/// Windows of a corpus: each contains the corpus's tokens, depends only on seed and step, and training windows never overlap the
/// held-out part.
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/data/batches.hpp>

#include "support/sanitizer.hpp"

namespace data_batches_tests {

namespace ht = halftone;

// Token i is i itself, so that a window tells where it stands.
std::vector<std::int32_t> counting(int n) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) ids[static_cast<std::size_t>(i)] = i;
    return ids;
}

ht::token_view view_of(const std::vector<std::int32_t>& ids) {
    return ht::token_view{std::span<const std::int32_t>(ids)};
}

std::vector<std::int32_t> first_tokens(const ht::language_batch& batch) {
    std::vector<std::int32_t> first;
    for (ht::extent row = 0; row < batch.rows(); ++row) first.push_back(batch.tokens(row, 0));
    return first;
}

void check_windows(const ht::language_batch& batch) {
    REQUIRE(batch.tokens.shape() == batch.targets.shape());
    REQUIRE(batch.tokens.is_contiguous());
    REQUIRE(batch.targets.is_contiguous());
    for (ht::extent row = 0; row < batch.rows(); ++row) {
        for (ht::extent t = 0; t < batch.tokens.extent_of(1); ++t) {
            REQUIRE(batch.tokens(row, t) == batch.tokens(row, 0) + t);
            REQUIRE(batch.targets(row, t) == batch.tokens(row, t) + 1);
        }
    }
}

std::string message(const ht::token_view& tokens, const ht::language_options& options) {
    try {
        ht::language_data(tokens, options);
    } catch (const ht::data_error& e) {
        return e.what();
    }
    return "no error";
}

TEST_CASE("windows are what stands in the corpus, of the training part alone") {
    const auto ids = counting(1000);
    ht::language_data data{view_of(ids), {.context = 8, .vocabulary = 1000, .held_out = 0.1, .seed = 3}};
    bool first = false, last = false;
    for (std::uint32_t step = 0; step < 400; ++step) {
        const ht::language_batch batch = data.sample(step, 16);
        CHECK(batch.rows() == 16);
        check_windows(batch);
        for (const std::int32_t at : first_tokens(batch)) {
            REQUIRE(at + 8 < 900);
            first = first || at == 0;
            last = last || at == 891;
        }
    }
    // 6,400 draws of 892 places: one of them is missed with probability 0.0008, and the draws are fixed.
    CHECK(first);
    CHECK(last);
}

TEST_CASE("places are evenly spread") {
    const auto ids = counting(65);
    ht::language_data data{view_of(ids), {.context = 1, .vocabulary = 65, .held_out = 0}};
    std::vector<int> seen(64, 0);
    for (std::uint32_t step = 0; step < 1000; ++step) {
        for (const std::int32_t at : first_tokens(data.sample(step, 64))) ++seen[static_cast<std::size_t>(at)];
    }
    double chi_squared = 0;
    for (const int n : seen) chi_squared += (n - 1000.0) * (n - 1000.0) / 1000.0;
    // 63 degrees of freedom: mean 63, deviation 11.2; six deviations either way.
    CHECK(chi_squared > 63 - 67);
    CHECK(chi_squared < 63 + 67);
}

TEST_CASE("a step's windows depend on seed and step alone") {
    const auto ids = counting(5000);
    const ht::language_options options{.context = 16, .vocabulary = 5000, .seed = 7};
    ht::language_data a{view_of(ids), options}, b{view_of(ids), options};
    for (std::uint32_t step = 0; step < 10; ++step) b.sample(step, 4);
    const auto of_a = first_tokens(a.sample(11, 8));
    CHECK(of_a == first_tokens(b.sample(11, 8)));
    CHECK(of_a != first_tokens(b.sample(12, 8)));
    ht::language_data other{view_of(ids), {.context = 16, .vocabulary = 5000, .seed = 8}};
    CHECK(of_a != first_tokens(other.sample(11, 8)));
    // More rows begin with the same ones.
    auto more = first_tokens(a.sample(11, 12));
    more.resize(8);
    CHECK(more == of_a);
}

TEST_CASE("micro-batches are the rows of the batch") {
    const auto ids = counting(500);
    ht::language_data data{view_of(ids), {.context = 4, .vocabulary = 500}};
    const ht::language_batch batch = data.sample(0, 6);
    std::vector<std::int32_t> together;
    int count = 0;
    for (const ht::language_batch& micro : batch.split(3)) {
        CHECK(micro.rows() == 2);
        check_windows(micro);
        for (const std::int32_t at : first_tokens(micro)) together.push_back(at);
        ++count;
    }
    CHECK(count == 3);
    CHECK(together == first_tokens(batch));
    CHECK_THROWS_AS(batch.split(4), ht::argument_error);
    CHECK_THROWS_AS(batch.split(0), ht::argument_error);
    CHECK_THROWS_AS(batch.split(-2), ht::argument_error);
}

TEST_CASE("the held-out part comes in order, each token once a target") {
    const auto ids = counting(1000);
    ht::language_data data{view_of(ids), {.context = 10, .vocabulary = 1000, .held_out = 0.1}};
    // 100 tokens from 900 on: 9 windows with their targets, the tenth lacks one.
    CHECK(data.windows() == 9);
    std::int32_t next = 900;
    for (ht::extent first = 0; first < data.windows(); first += 4) {
        const ht::language_batch batch = data.window(first, 4);
        CHECK(batch.rows() == (first == 8 ? 1 : 4));
        check_windows(batch);
        for (const std::int32_t at : first_tokens(batch)) {
            CHECK(at == next);
            next += 10;
        }
    }
    CHECK_THROWS_AS(data.window(9, 1), ht::argument_error);
    CHECK_THROWS_AS(data.window(0, 0), ht::argument_error);
    CHECK_THROWS_AS(data.window(-1, 1), ht::argument_error);
    CHECK(ht::language_data(view_of(ids), {.context = 10, .vocabulary = 1000, .held_out = 0}).windows() == 0);
}

TEST_CASE("fewer windows are spread over the held-out part") {
    const auto ids = counting(1000);
    ht::language_data data{view_of(ids), {.context = 10, .vocabulary = 1000, .held_out = 0.1, .most_windows = 4}};
    CHECK(data.windows() == 4);
    CHECK(first_tokens(data.window(0, 16)) == std::vector<std::int32_t>{900, 920, 940, 960});
    ht::language_data all{view_of(ids), {.context = 10, .vocabulary = 1000, .held_out = 0.1, .most_windows = 100}};
    CHECK(all.windows() == 9);
    CHECK_THROWS_AS(ht::language_data(view_of(ids), {.context = 10, .vocabulary = 1000, .most_windows = -1}),
                    ht::argument_error);
}

TEST_CASE("a batch of the same size reuses its memory") {
    const auto ids = counting(500);
    ht::language_data data{view_of(ids), {.context = 4, .vocabulary = 500}};
    const std::int32_t* tokens = data.sample(0, 6).tokens.data();
    CHECK(data.sample(1, 6).tokens.data() == tokens);
    CHECK(data.window(0, 3).tokens.data() == tokens);
}

TEST_CASE("what is too short or outside the vocabulary is refused when the data is opened") {
    const auto ids = counting(100);
    CHECK(message(view_of(ids), {.context = 100, .vocabulary = 100}) ==
          "data: the text has 100 tokens; a context of 100 needs 101 or more");
    CHECK(message(view_of(ids), {.context = 95, .vocabulary = 100}) ==
          "data: the training part has 90 tokens; a context of 95 needs 96 or more");
    CHECK(message(view_of(ids), {.context = 10, .vocabulary = 100}) ==
          "data: the held-out part has 10 tokens; a context of 10 needs 11 or more");
    CHECK(message(view_of(ids), {.context = 99, .vocabulary = 100, .held_out = 0}) == "no error");
    CHECK(message(view_of(ids), {.context = 4, .vocabulary = 99}) ==
          "tokens: number 99 is 99; the vocabulary has 0 to 98");
    CHECK(message(view_of(ids), {.context = INT64_MAX, .vocabulary = 100}) ==
          "data: the text has 100 tokens; a context of 9223372036854775807 needs 9223372036854775808 or more");
    CHECK_THROWS_AS(ht::language_data(view_of(ids), {.context = 0, .vocabulary = 100}), ht::argument_error);
    CHECK_THROWS_WITH_AS(ht::language_data(view_of(ids), {.context = 4, .vocabulary = 0}),
                         "data: a vocabulary of 0; expected 1 id or more", ht::argument_error);
    ht::language_data good{view_of(ids), {.context = 4, .vocabulary = 100}};
    CHECK_THROWS_AS(good.sample(0, 0), ht::argument_error);
    CHECK_THROWS_AS(good.sample(0, -1), ht::argument_error);
    CHECK_THROWS_AS(good.sample(0, INT64_MAX), ht::shape_error);
    if (!support::has_sanitizer) {
        CHECK_THROWS_WITH_AS(good.sample(0, INT64_MAX / 128),
                             "data: no memory for a batch of 72057594037927935 rows of 4 tokens", ht::out_of_memory);
    }
    CHECK(good.sample(0, 3).size() == 12);
}

}  // namespace data_batches_tests
