// SPDX-License-Identifier: MIT
/// \file
/// Functions of attention's scores on the CPU: biases, caps and masks compared with the definition, on every instruction set;
/// hidden values change no bit.
#include <doctest/doctest.h>

#include <halftone/kernel/attention/cpu.hpp>

#include "kernel/attention/mods.hpp"
#include "support/each_cpu.hpp"

namespace kernel_attention_score_mod_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::attention_sizes;
using support::bounds;
using support::guarded;
using support::layout;

constexpr auto full = ht::attention_mask::full;
constexpr auto causal = ht::attention_mask::causal;

template <class Compute, class T, class... F>
void check(const attention_sizes& sizes, layout way, const F&... functions) {
    const auto run = [](const support::problem<T>& p, const auto& mod, const auto& within) {
        support::for_each_cpu([&](ht::cpu& device) {
            ht::cpu two{{.threads = 2, .instruction_set = device.instruction_set()}};
            const auto got = support::modified_outcome<Compute>(p, device, mod);
            within(got);
            CHECK(got.same_bits(support::modified_outcome<Compute>(p, two, mod)));
        });
    };
    support::check_mod<Compute, T>(sizes, way, bounds::may_hide, run, functions...);
}

const auto past = [](auto, auto query, auto key) { return key <= query; };

template <class Compute, class T>
void check_functions() {
    const guarded<float> slopes(std::vector<float>{0.5f, 0.25f, 0.125f, 0.0625f});
    const auto slope = ht::lookup(slopes.const_view());
    const auto alibi = [=](auto score, auto head, auto query, auto key) { return score + slope(head) * (key - query); };
    check<Compute, T>({1, 70, 70, 4, 2, 16, causal}, layout::contiguous, alibi);
    check<Compute, T>({2, 33, 300, 2, 2, 24, full}, layout::heads_first, alibi);
    // Masks come after score_mods, in any order.
    check<Compute, T>({1, 130, 130, 2, 2, 32, causal}, layout::fused, ht::sliding_window{20}, ht::soft_cap{2});
    check<Compute, T>({1, 300, 300, 1, 1, 16, full}, layout::fused, ht::sliding_window{5});
    check<Compute, T>({1, 9, 140, 2, 1, 16, causal}, layout::contiguous, ht::sliding_window{20});
    const auto scaled = [](auto score, auto batch, auto head, auto query, auto key) {
        return score * (1 + 0.25f * batch) - 0.01f * ht::abs(query - key) + head;
    };
    check<Compute, T>({2, 20, 20, 2, 1, 8, full}, layout::contiguous, scaled, past);
    // A bias that is minus infinity.
    const auto minus_infinity = [](auto score, auto, auto query, auto key) {
        return ht::where(key < query - 3, score - HUGE_VAL, score);
    };
    check<Compute, T>({1, 40, 40, 1, 1, 16, causal}, layout::contiguous, minus_infinity);
}

TEST_CASE("functions of scores: o and gradients are within bounds") {
    SUBCASE("float") { check_functions<float, float>(); }
    SUBCASE("bfloat16") { check_functions<bfloat16, bfloat16>(); }
    SUBCASE("float16") { check_functions<float16, float16>(); }
}

TEST_CASE("masks by name: lengths, padding, documents, prefixes") {
    const guarded<std::int32_t> lengths(std::vector<std::int32_t>{0, 37, 3});
    check<float, float>({3, 20, 37, 2, 2, 16, full}, layout::contiguous, ht::key_lengths(lengths.const_view()));
    check<bfloat16, bfloat16>({3, 37, 37, 2, 1, 16, causal}, layout::contiguous, ht::key_lengths(lengths.const_view()));
    check<float, float>({3, 37, 37, 1, 1, 16, full}, layout::contiguous, ht::prefix_lm(lengths.const_view()));
    std::vector<std::uint8_t> padded(3 * 37, 0);
    for (std::size_t j = 0; j < 37; ++j) padded[j] = 1, padded[37 + j] = j % 3 == 0, padded[74 + j] = j > 30;
    const ht::const_view<std::uint8_t, 2> padding(padded.data(), {3, 37});
    check<float, float>({3, 9, 37, 1, 1, 16, full}, layout::contiguous, ht::key_padding_mask(padding));
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 150; ++i) ids.push_back(i < 20 ? 0 : i < 21 ? 1 : i < 120 ? 2 : 3);
    const ht::const_view<std::int32_t, 2> documents(ids.data(), {1, 150});
    check<float, float>({1, 150, 150, 2, 2, 16, causal}, layout::fused, ht::document_mask(documents));
    check<bfloat16, bfloat16>({1, 150, 150, 2, 2, 16, full}, layout::fused, ht::document_mask(documents));
}

/// The keys that a query sees.
template <class... F>
std::string seen(const ht::attention_options& options, extent queries, extent keys, extent query, const F&... functions) {
    const auto mod = ht::detail::attention_mod_of(options, queries, keys, functions...);
    std::string all;
    for (extent key = 0; key < keys; ++key) {
        const double x[] = {0.5, 0, 0, static_cast<double>(query), static_cast<double>(key)};
        if (ht::scalar::evaluate(mod.score, x) > -3e38) all += std::to_string(key) + ' ';
    }
    return all;
}

TEST_CASE("masks by name: of a few queries the last one stands where the last key does") {
    const ht::attention_options none{}, by_causal{.mask = ht::attention_mask::causal};
    CHECK(seen(by_causal, 1, 8, 0, ht::sliding_window{3}) == "5 6 7 ");
    CHECK(seen(by_causal, 2, 8, 0, ht::sliding_window{3}) == "4 5 6 ");
    CHECK(seen(none, 2, 8, 0, ht::sliding_window{3}) == "4 5 6 7 ");
    CHECK(seen(by_causal, 3, 3, 1, ht::sliding_window{2}) == "0 1 ");
    CHECK(seen(by_causal, 4, 2, 3, ht::sliding_window{2}) == "0 1 ");  // more queries than keys: the first ones see nothing
    CHECK(seen(by_causal, 4, 2, 0, ht::sliding_window{2}).empty());
    CHECK(seen(none, 1, 8, 0, ht::sliding_window{.size = 3, .first_query = 0}) == "0 1 2 ");
    CHECK(seen(none, 2, 8, 1, ht::sliding_window{.size = 2, .first_query = 3}) == "3 4 5 ");
    const std::vector<std::int32_t> lengths{2}, ids{0, 0, 0, 1, 1, 2, 2, 2};
    const ht::const_view<std::int32_t, 1> prefix(lengths.data(), {1});
    CHECK(seen(none, 2, 8, 0, ht::prefix_lm(prefix)) == "0 1 2 3 4 5 6 ");
    CHECK(seen(none, 2, 8, 0, ht::prefix_lm(prefix, 3)) == "0 1 2 3 ");
    const ht::const_view<std::int32_t, 2> documents(ids.data(), {1, 8});
    CHECK(seen(none, 1, 8, 0, ht::document_mask(documents)) == "5 6 7 ");
    CHECK(seen(none, 4, 8, 0, ht::document_mask(documents)) == "3 4 ");
    CHECK(seen(none, 4, 8, 0, ht::document_mask(documents, 0)) == "0 1 2 ");
    // A step over a cache sees what its tokens saw in the whole sequence.
    for (const extent queries : {1, 2, 3, 7}) {
        for (extent i = 0; i < queries; ++i) {
            const extent place = 8 - queries + i;
            CHECK(seen(by_causal, queries, 8, i, ht::sliding_window{3}) == seen(by_causal, 8, 8, place, ht::sliding_window{3}));
            CHECK(seen(none, queries, 8, i, ht::prefix_lm(prefix)) == seen(none, 8, 8, place, ht::prefix_lm(prefix)));
            CHECK(seen(none, queries, 8, i, ht::document_mask(documents)) == seen(none, 8, 8, place, ht::document_mask(documents)));
        }
    }
}

TEST_CASE("documents by a mask give the results of packed sequences") {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 66; ++i) ids.push_back(i < 20 ? 0 : i < 21 ? 1 : 2);
    const std::vector<std::int32_t> offsets{0, 20, 21, 66};
    const support::problem<float> p({1, 66, 66, 2, 2, 16, causal}, layout::fused);
    const auto mod = ht::detail::attention_mod_of(p.options, 66, 66,
                                                  ht::document_mask(ht::const_view<std::int32_t, 2>(ids.data(), {1, 66})));
    support::for_each_cpu([&](ht::cpu& device) {
        const auto masked = support::modified_outcome<float>(p, device, mod);
        const support::outcome<float> packed(p, [&](auto forward, auto backward) {
            forward.sequences = backward.sequences = ht::packed_sequences::of({offsets.data(), {4}}, 45);
            ht::kernel::attention<ht::cpu>::forward<float>(device, forward);
            ht::kernel::attention<ht::cpu>::backward<float>(device, backward);
        });
        CHECK(support::distance(support::exact(masked.o.view), support::exact(packed.o.view)) < 1e-5);
        CHECK(support::distance(support::exact(masked.d.k.view), support::exact(packed.d.k.view)) < 1e-4);
    });
}

template <class Compute, class T, class... F>
void check_hidden(const attention_sizes& sizes, layout way, const std::vector<extent>& queries,
                  const std::vector<extent>& keys, const F&... functions) {
    support::problem<T> p(sizes, way);
    const auto mod = ht::detail::attention_mod_of(p.options, sizes.queries, sizes.keys, functions...);
    support::for_each_cpu([&](ht::cpu& device) {
        support::check_hidden(p, support::seen_of(sizes, mod), queries, keys, [&](const support::problem<T>& now) {
            return support::modified_outcome<Compute>(now, device, mod);
        });
    });
}

template <class Compute, class T>
void check_all_hidden() {
    const auto every_third = [](auto, auto query, auto key) { return ht::abs(query - key) < 5 || key == 2 * query; };
    check_hidden<Compute, T>({1, 5, 5, 1, 1, 8, full}, layout::contiguous, {0, 2, 4}, {0, 1, 3, 4}, past);
    check_hidden<Compute, T>({2, 33, 40, 4, 2, 24, full}, layout::heads_first, {0, 1, 17, 31}, {0, 8, 20, 39}, every_third);
    check_hidden<Compute, T>({1, 130, 130, 1, 1, 17, causal}, layout::fused, {0, 24, 95, 127}, {1, 24, 63, 128},
                             ht::sliding_window{40}, ht::soft_cap{5});
    check_hidden<Compute, T>({1, 40, 300, 1, 1, 16, full}, layout::contiguous, {0, 39}, {0, 255, 299},
                             [](auto, auto query, auto key) { return key < 7 * query; });
}

TEST_CASE("functions of scores: hidden values have no effect, NaNs of visible ones propagate") {
    SUBCASE("float") { check_all_hidden<float, float>(); }
    SUBCASE("bfloat16") { check_all_hidden<bfloat16, bfloat16>(); }
    SUBCASE("float, products of float16") { check_all_hidden<float16, float>(); }
}

}  // namespace kernel_attention_score_mod_tests
