// SPDX-License-Identifier: MIT
/// \file
/// Fully masked blocks of queries and keys, found by interval arithmetic.
#include <doctest/doctest.h>

#include <halftone/kernel/attention/score_mod/interval.hpp>
#include <halftone/kernel/attention/score_mod/score_mod.hpp>

#include "support/guarded.hpp"

namespace kernel_attention_score_interval_tests {

namespace ht = halftone;
using ht::extent;
using support::guarded;

const auto past = [](auto, auto query, auto key) { return key <= query; };

template <class... F>
bool hides(const ht::detail::attention_block& block, const F&... functions) {
    return ht::detail::hides_block(ht::detail::attention_mod_of({}, 10000, 10000, functions...).score, block);
}

TEST_CASE("intervals find a block whose pairs are all hidden") {
    const auto block = [](extent query, extent key) { return ht::detail::attention_block{0, 0, query, 32, key, 64}; };
    CHECK(hides(block(0, 32), past));
    CHECK(!hides(block(1, 32), past));
    CHECK(hides(block(512, 0), ht::sliding_window{449}));
    CHECK(!hides(block(512, 0), ht::sliding_window{450}));
    CHECK(hides(block(0, 482), ht::sliding_window{451}));
    CHECK(!hides(block(0, 481), ht::sliding_window{451}));
    CHECK(hides(block(512, 0), ht::soft_cap{3}, ht::sliding_window{100}));
    // After a score_mod that adds to minus infinity the interval is unknown, so that no block is skipped.
    CHECK(hides(block(512, 0), [](auto score, auto, auto query, auto key) {
        return ht::where(query - key < 100, score, -HUGE_VAL);
    }));
    std::vector<std::int32_t> ids(10000, 0);
    for (std::size_t i = 300; i < ids.size(); ++i) ids[i] = 1;
    const auto documents = ht::document_mask(ht::const_view<std::int32_t, 2>(ids.data(), {1, 10000}));
    CHECK(hides(block(300, 236), documents));
    CHECK(!hides(block(299, 236), documents));
    CHECK(!hides(block(300, 237), documents));
    const std::vector<std::int32_t> lengths{100};
    CHECK(hides(block(0, 100), ht::key_lengths(ht::const_view<std::int32_t, 1>(lengths.data(), {1}))));
    CHECK(!hides(block(0, 99), ht::key_lengths(ht::const_view<std::int32_t, 1>(lengths.data(), {1}))));
}

TEST_CASE("intervals report a block as hidden only if each of its pairs is") {
    const guarded<float> slopes(std::vector<float>{0.5f, -0.3f});
    const auto slope = ht::lookup(slopes.const_view());
    const auto sometimes = [=](auto, auto head, auto query, auto key) {
        return (slope(head) * key < 7.7f && !(ht::max(query, 2 * key) == 31)) || ht::square(query - key) <= 50;
    };
    const auto mod = ht::detail::attention_mod_of({}, 64, 64, sometimes);
    for (extent head = 0; head < 2; ++head) {
        for (extent i = 0; i < 60; ++i) {
            for (extent j = 0; j < 60; ++j) {
                const ht::detail::attention_block block{0, head, i, 1 + i % 4, j, 1 + j % 3};
                bool all = true;
                for (extent a = 0; a < block.queries; ++a) {
                    for (extent b = 0; b < block.keys; ++b) {
                        const float x[] = {0, 0, static_cast<float>(head), static_cast<float>(i + a),
                                           static_cast<float>(j + b)};
                        all = all && ht::scalar::evaluate(mod.score, x) < -3e38f;
                    }
                }
                if (ht::detail::hides_block(mod.score, block)) CHECK(all);
            }
        }
    }
}

}  // namespace kernel_attention_score_interval_tests
