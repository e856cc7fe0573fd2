// SPDX-License-Identifier: MIT
/// \file
/// The choice of a token against its definition: which tokens top-k and top-p leave, how often each is drawn, what draws follow
/// from, and what is refused.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/nn/token_sampler.hpp>

#include "support/random.hpp"

namespace nn_token_sampler_tests {

namespace ht = halftone;
using ids = std::vector<std::int32_t>;

constexpr float infinity = std::numeric_limits<float>::infinity();

/// The definition as it is written: all tokens sorted, then cut twice.
ids defined(const std::vector<float>& logits, double temperature, std::size_t top_k, double top_p) {
    ids order(logits.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    const auto logit = [&](std::int32_t id) { return static_cast<double>(logits[static_cast<std::size_t>(id)]); };
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return logit(a) > logit(b); });
    if (top_k > 0 && top_k < order.size()) order.resize(top_k);
    const double highest = logit(order[0]);
    const auto weight = [&](std::int32_t id) { return std::exp((logit(id) - highest) / temperature); };
    double all = 0, so_far = 0;
    for (const std::int32_t id : order) all += weight(id);
    ids left;
    for (const std::int32_t id : order) {
        if (!left.empty() && so_far >= top_p * all && top_p < 1) break;
        left.push_back(id);
        so_far += weight(id);
    }
    std::sort(left.begin(), left.end());
    return left;
}

std::vector<float> some_logits(int count, std::uint64_t seed) {
    support::random data(seed);
    std::vector<float> logits = data.normals<float>(count, 2);
    if (count > 4) logits[1] = logits[4], logits[2] = -infinity;  // equals, and a token that never comes
    return logits;
}

TEST_CASE("token_sampler: top-k and top-p leave what their definition does") {
    for (const int count : {1, 2, 5, 37, 300}) {
        const auto logits = some_logits(count, 1);
        for (const double temperature : {0.1, 1.0, 3.0}) {
            for (const int top_k : {0, 1, 2, 7, 40, 1000}) {
                for (const double top_p : {1e-6, 0.1, 0.5, 0.9, 0.999, 1.0}) {
                    CAPTURE(count);
                    CAPTURE(temperature);
                    CAPTURE(top_k);
                    CAPTURE(top_p);
                    const auto left =
                        ht::detail::tokens_left(logits, {.temperature = temperature, .top_k = top_k, .top_p = top_p});
                    CHECK(left.ids == defined(logits, temperature, static_cast<std::size_t>(top_k), top_p));
                    for (std::size_t i = 0; i < left.ids.size(); ++i) {
                        const double logit = static_cast<double>(logits[static_cast<std::size_t>(left.ids[i])]),
                                     highest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
                        CHECK(left.weights[i] == std::exp((logit - highest) / temperature));
                    }
                }
            }
        }
    }
}

TEST_CASE("token_sampler: tokens are drawn as often as their weights say") {
    const std::vector<float> logits{1, 0, 2, -infinity, 1.5f, -1};
    for (const ht::generation_options& o :
         {ht::generation_options{.temperature = 1}, ht::generation_options{.temperature = 2, .top_k = 3},
          ht::generation_options{.temperature = 0.5, .top_p = 0.8}}) {
        constexpr int draws = 20000;
        std::vector<double> counts(logits.size()), expected(logits.size());
        for (int i = 0; i < draws; ++i)
            counts[static_cast<std::size_t>(ht::sample_token(logits, o, 3, static_cast<std::uint32_t>(i)))] += 1;
        const auto left = ht::detail::tokens_left(logits, o);
        double all = 0;
        for (const double w : left.weights) all += w;
        for (std::size_t i = 0; i < left.ids.size(); ++i)
            expected[static_cast<std::size_t>(left.ids[i])] = left.weights[i] / all;
        // Five deviations of a binomial count; 0 for what is not left.
        for (std::size_t i = 0; i < logits.size(); ++i)
            CHECK(std::fabs(counts[i] - draws * expected[i]) <= 5 * std::sqrt(draws * expected[i] * (1 - expected[i])));
    }
}

TEST_CASE("token_sampler: draws follow from seed, sequence and position") {
    const auto logits = some_logits(300, 2);
    const ht::generation_options o{.temperature = 1, .seed = 7}, other{.temperature = 1, .seed = 8};
    const auto many = [&](const ht::generation_options& options, std::uint64_t sequence, std::uint32_t first) {
        ids all;
        for (std::uint32_t i = 0; i < 50; ++i) all.push_back(ht::sample_token(logits, options, sequence, first + i));
        return all;
    };
    CHECK(many(o, 1, 0) == many(o, 1, 0));
    CHECK(many(o, 1, 0) != many(o, 2, 0));
    CHECK(many(o, 1, 0) != many(o, 1, 1000));
    CHECK(many(o, 1, 0) != many(other, 1, 0));
    // Without a temperature nothing is drawn: the first of the largest.
    const std::vector<float> equal{1, 3, 2, 3};
    CHECK(ht::sample_token(equal, {.top_k = 2, .top_p = 0.5}, 0, 0) == 1);
}

TEST_CASE("token_sampler: what the text has already becomes less likely, once however often it came") {
    std::vector<float> logits{3, -2, 0, 5};
    const ids text{0, 1, 1, 0, 2, 7, -1};
    ht::detail::penalize_repetition(logits, text, 1.5);
    CHECK(logits == std::vector<float>{2, -3, 0, 5});
    ht::detail::penalize_repetition(logits, text, 1);
    CHECK(logits == std::vector<float>{2, -3, 0, 5});
}

TEST_CASE("token_sampler: options out of range, and logits of which nothing can be chosen") {
    const std::vector<float> logits{0, 1, 2}, none, with_nan{0, std::nanf(""), 2}, infinite{0, infinity}, nothing{-infinity};
    const auto choose = [](const std::vector<float>& row, const ht::generation_options& o) { ht::sample_token(row, o, 0, 0); };
    CHECK_THROWS_WITH_AS(choose(logits, {.temperature = -1}), "generate: the temperature is -1; expected 0 or more",
                         ht::argument_error);
    CHECK_THROWS_AS(choose(logits, {.temperature = std::nan("")}), ht::argument_error);
    CHECK_THROWS_WITH_AS(choose(logits, {.top_k = -1}), "generate: top_k is -1; expected 0 (all) or more", ht::argument_error);
    CHECK_THROWS_WITH_AS(choose(logits, {.top_p = 0}), "generate: top_p is 0; expected more than 0, and at most 1",
                         ht::argument_error);
    CHECK_THROWS_AS(choose(logits, {.top_p = 1.5}), ht::argument_error);
    CHECK_THROWS_WITH_AS(choose(logits, {.repetition_penalty = 0}),
                         "generate: repetition_penalty is 0; expected more than 0, as a float", ht::argument_error);
    // As a float it would be 0, and the logit of a token that is ruled out, -inf, become a NaN.
    CHECK_THROWS_AS(choose(logits, {.repetition_penalty = 1e-300}), ht::argument_error);
    CHECK_THROWS_AS(choose(logits, {.repetition_penalty = 1e300}), ht::argument_error);
    CHECK_THROWS_AS(choose(none, {}), ht::argument_error);
    CHECK_THROWS_WITH_AS(choose(with_nan, {}), "generate: the logit of token 1 is NaN", ht::argument_error);
    CHECK_THROWS_WITH_AS(choose(infinite, {.temperature = 1}), "generate: the largest logit, of token 1, is inf",
                         ht::argument_error);
    CHECK_THROWS_AS(choose(nothing, {}), ht::argument_error);
}

}  // namespace nn_token_sampler_tests
