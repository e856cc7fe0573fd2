// SPDX-License-Identifier: MIT
/// \file
/// NaNs, infinities and the largest numbers that a mask hides: flash kernels on every instruction set.
#include <doctest/doctest.h>

#include <halftone/kernel/attention/cpu.hpp>

#include "kernel/attention/hidden.hpp"
#include "kernel/product/software_tiles.hpp"
#include "support/each_cpu.hpp"

namespace kernel_attention_hidden_tests {

namespace ht = halftone;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::attention_sizes;
using support::layout;

constexpr auto full = ht::attention_mask::full;
constexpr auto causal = ht::attention_mask::causal;

template <class Compute, class T>
void check_flash(const attention_sizes& sizes, layout way, const std::vector<extent>& queries,
                 const std::vector<extent>& keys) {
    support::problem<T> p(sizes, way);
    support::for_each_cpu([&](ht::cpu& device) {
        support::check_hidden(p, support::seen_of(sizes), queries, keys, [&](const support::problem<T>& now) {
            return support::outcome_of<Compute>(now, device);
        });
    });
}

template <class Compute, class T>
void check_all_flash() {
    // Batch, queries, keys, query heads, key heads, head size.
    check_flash<Compute, T>({1, 5, 5, 1, 1, 8, causal}, layout::contiguous, {0, 2, 4}, {0, 1, 3, 4});
    check_flash<Compute, T>({2, 33, 40, 4, 2, 24, causal}, layout::heads_first, {0, 1, 17, 31}, {0, 8, 20, 39});
    check_flash<Compute, T>({1, 130, 130, 1, 1, 64, causal}, layout::fused, {0, 24, 95, 127, 128},
                            {1, 24, 63, 128, 129});
    // Several tiles of keys and blocks of queries.
    check_flash<Compute, T>({1, 70, 600, 2, 1, 16, causal}, layout::contiguous, {0, 47, 69}, {2, 530, 545, 599});
    check_flash<Compute, T>({1, 300, 301, 1, 1, 17, causal}, layout::contiguous, {5, 130, 256, 299},
                            {0, 192, 257, 300});
    check_flash<Compute, T>({2, 7, 40, 2, 2, 8, full}, layout::heads_first, {0, 6}, {0, 39});
}

TEST_CASE("flash attention: hidden values have no effect, NaNs of visible ones propagate") {
    SUBCASE("float") { check_all_flash<float, float>(); }
    SUBCASE("bfloat16") { check_all_flash<bfloat16, bfloat16>(); }
    SUBCASE("float16") { check_all_flash<float16, float16>(); }
    SUBCASE("float, products of float16") { check_all_flash<float16, float>(); }
    SUBCASE("float, products of tfloat32") { check_all_flash<ht::tfloat32, float>(); }
}

TEST_CASE("flash attention: many NaNs at once") {
    // All keys and values that the first queries do not see are NaN.
    support::problem<float> p({1, 60, 60, 2, 1, 16, causal}, layout::contiguous);
    support::for_each_cpu([&](ht::cpu& device) {
        const auto clean = support::outcome_of<float>(p, device);
        support::problem<float> other({1, 60, 60, 2, 1, 16, causal}, layout::contiguous);
        for (const auto& x : {other.x.q.view, other.x.k.view, other.x.v.view, other.d_o.view}) {
            for (extent i = 25; i < 60; ++i) std::memset(&x(0, i, 0, 0), 0xff, 16 * sizeof(float));
        }
        const auto got = support::outcome_of<float>(other, device);
        for (extent i = 0; i < 25; ++i) {
            CHECK(support::poison_check<float>::same(got.o.view, clean.o.view, 0, i, 0));
            CHECK(support::poison_check<float>::same(got.d.q.view, clean.d.q.view, 0, i, 0));
        }
        for (extent i = 25; i < 60; ++i) CHECK(support::poison_check<float>::shows(got.o.view, 0, i, 0));
    });
}

TEST_CASE("flash attention on AMX-shaped products: hidden values have no effect") {
    if (!support::is_tested(ht::isa::avx512_bf16)) {
        MESSAGE("not tested here: the packing needs avx512_bf16");
        return;
    }
    for (const attention_sizes& sizes :
         {attention_sizes{1, 65, 65, 1, 1, 16, causal}, attention_sizes{1, 335, 344, 2, 1, 16, causal}}) {
        support::problem<bfloat16> p(sizes, layout::heads_first);
        ht::cpu device{{.threads = 1, .instruction_set = ht::isa::avx512_bf16}};
        auto engine = ht::detail::attention_engine_for<bfloat16, bfloat16>(device);
        engine.unit = support::software_tiles::unit();
        support::check_hidden(
            p, support::seen_of(sizes), {0, 33, 64}, {0, 1, 40, 64}, [&](const support::problem<bfloat16>& now) {
                return support::outcome<bfloat16>(now, [&](const auto& forward, const auto& backward) {
                    ht::kernel::attention<ht::cpu>::forward(device, forward, engine);
                    ht::kernel::attention<ht::cpu>::backward(device, backward, engine);
                });
            });
    }
}

/// Products that read and write whole rows of a unit, as matrix tiles do.
void multiply_whole_rows(extent rows, extent k, const void* a, const void* b, float* c, extent stride, bool add,
                         ht::detail::lookahead* ahead) {
    ht::portable::fma_multiply((rows + 23) / 24 * 24, k, a, b, c, stride, add, ahead);
}

TEST_CASE("flash attention on products of whole rows: hidden values have no effect") {
    for (const attention_sizes& sizes :
         {attention_sizes{1, 65, 65, 1, 1, 16, causal}, attention_sizes{1, 335, 344, 2, 1, 16, causal}}) {
        support::problem<float> p(sizes, layout::heads_first);
        ht::cpu device{{.threads = 1, .instruction_set = ht::isa::portable}};
        auto engine = ht::detail::attention_engine_for<float, float>(device);
        engine.unit.rows = 24;
        engine.unit.multiply = &multiply_whole_rows;
        support::check_hidden(p, support::seen_of(sizes), {0, 1, 33, 64}, {0, 1, 40, 64},
                              [&](const support::problem<float>& now) {
                                  return support::outcome<float>(now, [&](const auto& forward, const auto& backward) {
                                      ht::kernel::attention<ht::cpu>::forward(device, forward, engine);
                                      ht::kernel::attention<ht::cpu>::backward(device, backward, engine);
                                  });
                              });
    }
}

TEST_CASE("flash attention: no finite score") {
    support::for_each_cpu([](ht::cpu& device) {
        support::check_lowest_score<float>({1, 9, 12, 2, 1, 16, causal}, layout::contiguous,
                                           [&](const auto& p) { return support::outcome_of<float>(p, device); });
        support::check_lowest_score<bfloat16>({1, 9, 9, 2, 2, 8, causal}, layout::fused,
                                              [&](const auto& p) { return support::outcome_of<bfloat16>(p, device); });
    });
}

template <class Compute, class T, class Run>
void check_packed(const support::sequence_lengths& lengths, attention_sizes heads, layout way, const Run& run) {
    support::packed_problem<T> p(lengths, heads, way);
    const support::seen_pairs seen = support::seen_of(lengths, heads.mask);
    support::for_each_cpu([&](ht::cpu& device) {
        // One sequence after the other, its first and its last time.
        std::vector<extent> queries, keys;
        for (const extent t : support::sequence_lengths::offsets(lengths.queries)) {
            for (const extent at : {t - 1, t}) {
                if (at >= 0 && at < p.whole.sizes.queries) queries.push_back(at);
            }
        }
        for (const extent t : support::sequence_lengths::offsets(lengths.keys)) {
            for (const extent at : {t - 1, t}) {
                if (at >= 0 && at < p.whole.sizes.keys) keys.push_back(at);
            }
        }
        support::check_hidden(p.whole, seen, queries, keys, [&](const support::problem<T>&) { return run(p, device); });
    });
}

template <class Compute, class T>
void check_packs() {
    const auto flash = [](const auto& p, ht::cpu& device) { return p.template outcome_on<Compute>(device); };
    for (const auto mask : {causal, full}) {
        const support::sequence_lengths same{{1, 17, 5, 33}, {1, 17, 5, 33}}, cached{{2, 1, 9, 0}, {30, 70, 9, 3}};
        check_packed<Compute, T>(same, {1, 0, 0, 2, 2, 16, mask}, layout::fused, flash);
        check_packed<Compute, T>(cached, {1, 0, 0, 2, 1, 20, mask}, layout::heads_first, flash);
    }
}

TEST_CASE("packed sequences: values of other sequences have no effect, NaNs of visible ones propagate") {
    SUBCASE("float") { check_packs<float, float>(); }
    SUBCASE("bfloat16") { check_packs<bfloat16, bfloat16>(); }
    SUBCASE("float, products of float16") { check_packs<float16, float>(); }
}

}  // namespace kernel_attention_hidden_tests
