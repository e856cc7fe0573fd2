// SPDX-License-Identifier: MIT
/// \file
/// Attention's GPU kernels on the emulated GPU.
#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <halftone/exec/measure.hpp>
#include <halftone/kernel/attention/device.hpp>

#include "emulator/kernel/attention_checks.hpp"

namespace emulator_kernel_attention_tests {

namespace ht = halftone;
namespace emulator = ht::emulator;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::bounds;
using support::guarded;
using support::layout;
using attention = ht::kernel::attention<emulator::device>;

constexpr auto full = ht::attention_mask::full;
constexpr auto causal = ht::attention_mask::causal;

// Batch, queries, keys, query heads, key heads, head size.

template <class T>
void check_matrix_kernels() {
    emulator::check_attention<T, T>({1, 1, 1, 2, 2, 64, causal}, layout::fused_chunks, bounds::may_hide);
    emulator::check_attention<T, T>({2, 17, 17, 2, 2, 16, causal}, layout::fused_chunks);
    emulator::check_attention<T, T>({1, 64, 64, 2, 2, 32, full}, layout::fused_chunks);
    emulator::check_attention<T, T>({1, 65, 65, 1, 1, 64, causal}, layout::heads_first_chunks);
    emulator::check_attention<T, T>({1, 130, 130, 1, 1, 64, causal}, layout::fused_chunks);
    emulator::check_attention<T, T>({1, 17, 130, 1, 1, 80, full}, layout::heads_first_chunks);
    emulator::check_attention<T, T>({1, 65, 130, 1, 1, 96, causal}, layout::heads_first_chunks);
    emulator::check_attention<T, T>({1, 130, 130, 1, 1, 128, causal}, layout::fused_chunks);
    emulator::check_attention<T, T>({2, 65, 70, 4, 2, 24, causal}, layout::heads_first_chunks);
    emulator::check_attention<T, T>({1, 33, 65, 3, 1, 128, full}, layout::heads_first_chunks);
}

TEST_CASE("attention on a GPU's matrix units is within bounds") {
    SUBCASE("bfloat16") { check_matrix_kernels<bfloat16>(); }
    SUBCASE("float16") { check_matrix_kernels<float16>(); }
}

TEST_CASE("attention on a GPU's matrix units: wide heads, by the tiles of each architecture") {
    SUBCASE("99 KB of shared memory to a block") {
        emulator::check_attention<bfloat16, bfloat16>({1, 33, 40, 2, 1, 256, causal}, layout::heads_first_chunks,
                                                      bounds::telling, 1, 86);
        emulator::check_attention<bfloat16, bfloat16>({2, 3, 3, 1, 1, 136, causal}, layout::fused_chunks,
                                                      bounds::may_hide, 1, 120);
    }
    SUBCASE("163 KB and more") {
        emulator::check_attention<bfloat16, bfloat16>({1, 17, 66, 1, 1, 256, causal}, layout::heads_first_chunks,
                                                      bounds::may_hide, 1, 80);
        emulator::check_attention<float16, float16>({1, 5, 18, 1, 1, 192, full}, layout::heads_first_chunks,
                                                    bounds::may_hide, 1, 90);
    }
}

TEST_CASE("attention on a GPU's matrix units that truncate sums is within bounds") {
    SUBCASE("bfloat16") { emulator::check_truncated_attention<bfloat16, bfloat16>(); }
    SUBCASE("float16") { emulator::check_truncated_attention<float16, float16>(); }
}

TEST_CASE("attention on a GPU without its matrix units is within bounds") {
    SUBCASE("float") {
        emulator::check_attention<float, float>({1, 1, 1, 2, 2, 64, causal}, layout::fused, bounds::may_hide);
        emulator::check_attention<float, float>({2, 17, 17, 2, 2, 16, full}, layout::fused);
        emulator::check_attention<float, float>({1, 64, 65, 1, 1, 32, causal}, layout::heads_first);
        emulator::check_attention<float, float>({1, 9, 40, 1, 1, 128, full}, layout::heads_first);
        emulator::check_attention<float, float>({1, 5, 34, 1, 1, 256, causal}, layout::contiguous, bounds::may_hide);
    }
    SUBCASE("bfloat16, unaligned") {
        emulator::check_attention<bfloat16, bfloat16>({1, 33, 70, 4, 2, 24, causal}, layout::contiguous);
        emulator::check_attention<bfloat16, bfloat16>({1, 17, 17, 1, 1, 80, causal}, layout::fused);
        emulator::check_attention<bfloat16, bfloat16>({1, 5, 9, 1, 1, 3, full}, layout::contiguous, bounds::may_hide);
        emulator::check_attention<bfloat16, bfloat16>({1, 3, 5, 1, 1, 136, full}, layout::heads_first,
                                                      bounds::may_hide);
    }
    SUBCASE("float16, unaligned") {
        emulator::check_attention<float16, float16>({1, 33, 33, 2, 2, 20, full}, layout::fused);
    }
    SUBCASE("float, products of bfloat16") {
        emulator::check_attention<bfloat16, float>({1, 33, 70, 1, 1, 64, causal}, layout::contiguous);
    }
}

TEST_CASE("attention on a GPU over packed sequences: each has the same bits as in a call of its own") {
    SUBCASE("of every kind") {
        support::for_each_pack([](const auto& lengths, const auto& heads, layout way, bounds kind) {
            if (way == layout::heads_first) emulator::check_packed_attention<float, float>(lengths, heads, way, kind);
            emulator::check_packed_attention<bfloat16, bfloat16>(lengths, heads, way, kind);
        });
    }
    SUBCASE("several parts a sequence") {
        emulator::check_packed_attention<bfloat16, bfloat16>({{131, 3, 66}, {131, 20, 70}}, {1, 0, 0, 1, 1, 40, causal},
                                                             layout::heads_first_chunks, bounds::may_hide);
        emulator::check_packed_attention<float16, float16>({{70, 9}, {40, 133}}, {1, 0, 0, 1, 1, 128, causal},
                                                           layout::heads_first_chunks, bounds::may_hide);
    }
    SUBCASE("wide heads") {
        emulator::check_packed_attention<bfloat16, bfloat16>(
            {{0, 20, 3, 7}, {5, 20, 0, 4}}, {1, 0, 0, 1, 1, 256, causal}, layout::heads_first_chunks, bounds::may_hide);
    }
}

TEST_CASE("attention on a GPU's matrix units is exact if all numbers are integers") {
    emulator::check_exact_attention<bfloat16, bfloat16>({{20, 9}, {33, 12}}, 40, 80);
    emulator::check_exact_attention<float16, float16>({{20, 9}, {33, 12}}, 128, 80);
    emulator::check_exact_attention<bfloat16, bfloat16>({{20, 9}, {33, 12}}, 256, 80);
    emulator::check_exact_attention<bfloat16, bfloat16>({{9, 20}, {12, 33}}, 200, 86);
}

TEST_CASE("attention on a GPU over packed sequences: with invalid offsets no memory outside is written") {
    const auto intact = [&](layout way, std::vector<std::int32_t> of_queries, std::vector<std::int32_t> of_keys,
                            extent longest_queries, extent longest_keys) {
        const support::problem<bfloat16> p({1, 9, 12, 1, 1, 8, causal}, way);
        const guarded<std::int32_t> query_offsets(of_queries), key_offsets(of_keys);
        emulator::device device;
        const support::outcome<bfloat16> got(p, [&](auto forward, auto backward) {
            forward.sequences = backward.sequences = {query_offsets.const_view(), key_offsets.const_view(),
                                                      longest_queries, longest_keys};
            attention::forward<bfloat16>(device, forward);
            attention::backward<bfloat16>(device, backward);
        });
        CHECK(got.intact());
    };
    for (const layout way : {layout::heads_first, layout::heads_first_chunks}) {
        intact(way, {0, 5, 9}, {-7, 20, 3}, 9, 12);
        intact(way, {3, 20, -4, 9}, {12, 0, 1 << 30, -(1 << 30)}, 9, 12);
        intact(way, {0, 9, 0, 9, 0, 9}, {0, 12, 0, 12, 0, 12}, 1 << 30, 1 << 30);
        intact(way, {0}, {0}, 9, 12);
        intact(way, {-(1 << 30), 1 << 30}, {0, 12}, 4, 5);
        intact(way, {0, 4, 9}, {0, 4, 12}, 2, 0);
    }
}

TEST_CASE("attention on a GPU: the reason where matrix units are not used") {
    const auto why_not = [](extent head_size, layout way) {
        const support::problem<bfloat16> p({1, 2, 2, 1, 1, head_size, full}, way);
        const char* sentence = nullptr;
        support::outcome<bfloat16>(p, [&](const auto& forward, const auto& backward) {
            sentence = attention::why_not_matrix_units<bfloat16>(forward);
            CHECK((sentence == nullptr) == (attention::why_not_matrix_units<bfloat16>(backward) == nullptr));
            CHECK(attention::why_not_matrix_units<float>(forward) != nullptr);
        });
        return std::string(sentence == nullptr ? "" : sentence);
    };
    CHECK(why_not(64, layout::fused_chunks) == "");
    CHECK(why_not(256, layout::heads_first_chunks) == "");
    CHECK(why_not(20, layout::fused_chunks) == "head_size is not a multiple of 8");
    CHECK(why_not(64, layout::heads_first) == "some head's vectors do not begin on a multiple of 16 bytes");
}

TEST_CASE("attention on a GPU: scores of ten thousand and more") {
    for (const double deviation : {300.0, 10000.0}) {
        emulator::check_attention<float, float>({1, 9, 40, 1, 1, 16, full}, layout::contiguous, bounds::may_hide,
                                                deviation);
        emulator::check_attention<bfloat16, bfloat16>({1, 70, 70, 1, 1, 64, causal}, layout::fused_chunks,
                                                      bounds::may_hide, deviation);
        emulator::check_attention<float16, float16>({1, 20, 70, 1, 1, 16, causal}, layout::heads_first_chunks,
                                                    bounds::may_hide, deviation);
    }
}

TEST_CASE("attention on a GPU: the result of a single key is its value") {
    for (const layout way : {layout::heads_first, layout::heads_first_chunks}) {
        const support::problem<bfloat16> p({2, 3, 1, 2, 1, 40, full}, way);
        emulator::device device;
        const auto got = support::outcome_of<bfloat16>(p, device);
        bool same = true;
        for (extent b = 0; b < 2; ++b) {
            for (extent i = 0; i < 3; ++i) {
                for (extent h = 0; h < 2; ++h) {
                    for (extent d = 0; d < 40; ++d)
                        same = same && got.o.view(b, i, h, d).bits() == p.x.v.view(b, 0, 0, d).bits();
                }
            }
        }
        CHECK(same);
    }
}

TEST_CASE("attention on a GPU: no queries, no heads, no logsumexp") {
    emulator::device device;
    for (const extent head_size : {5, 16}) {
        const extent keys = 7;
        const guarded<bfloat16> k(keys * head_size, 0), dk(keys * head_size, 0), dv(keys * head_size, 0);
        const ht::shape<4> of_q{1, 0, 1, head_size}, of_k{1, keys, 1, head_size};
        std::fill_n(k.data(), k.size(), bfloat16(1.0f));
        attention::forward<bfloat16>(
            device, ht::kernel::attention_forward<bfloat16>{k.const_view(of_q), k.const_view(of_k), k.const_view(of_k),
                                                            dk.view(of_q)});
        attention::backward<bfloat16>(device, ht::kernel::attention_backward<bfloat16>{k.const_view(of_q),
                                                                                       k.const_view(of_k),
                                                                                       k.const_view(of_k),
                                                                                       k.const_view(of_q),
                                                                                       {nullptr, {1, 1, 0, 2}},
                                                                                       k.const_view(of_q),
                                                                                       dk.view(of_q),
                                                                                       dk.view(of_k),
                                                                                       dv.view(of_k)});
        CHECK(std::all_of(dk.data(), dk.data() + dk.size(), [](bfloat16 x) { return x.bits() == 0; }));
        CHECK(std::all_of(dv.data(), dv.data() + dv.size(), [](bfloat16 x) { return x.bits() == 0; }));
        CHECK((dk.intact() && dv.intact()));
    }
    const ht::view<float, 4> nothing(nullptr, {2, 3, 0, 8});
    CHECK_NOTHROW(
        attention::forward<float>(device, ht::kernel::attention_forward<float>{nothing, nothing, nothing, nothing}));

    for (const layout way : {layout::fused, layout::fused_chunks}) {
        const support::problem<bfloat16> p({1, 20, 20, 1, 1, 16, causal}, way);
        const auto with = support::outcome_of<bfloat16>(p, device);
        const support::outcome<bfloat16> without(p, [&](auto forward, const auto&) {
            forward.logsumexp = {};
            attention::forward<bfloat16>(device, forward);
        });
        CHECK(with.o.same_bits(without.o));
    }
}

TEST_CASE("attention on a GPU: its scratch memory is as stated, and allocated once") {
    emulator::device device;
    const support::problem<bfloat16> p({1, 70, 70, 2, 2, 16, causal}, layout::fused_chunks);
    ht::memory_usage& usage = device.memory().usage();
    const support::outcome<bfloat16> got(p, [&](const auto& forward, const auto& backward) {
        attention::forward<bfloat16>(device, forward);
        CHECK(usage.allocations() == 0);
        attention::backward<bfloat16>(device, backward);
        CHECK(usage.peak(ht::memory_kind::workspace) == ht::workspace_bytes(device, [&](auto& d) {
                  ht::kernel::attention<std::remove_cvref_t<decltype(d)>>::template backward<bfloat16>(d, backward);
              }));
        const auto allocations = usage.allocations();
        attention::backward<bfloat16>(device, backward);
        CHECK(usage.allocations() == allocations);
    });
    CHECK(got.intact());
}

TEST_CASE("attention on a GPU refuses sizes beyond its kernels' integers") {
    emulator::device device;
    const ht::view<float, 4> x(nullptr, {1, extent{1} << 31, 1, 1});
    CHECK_THROWS_AS(attention::forward<float>(device, ht::kernel::attention_forward<float>{x, x, x, x}),
                    ht::shape_error);
    const ht::view<float, 4> other(nullptr, {1, 3, 1, 2});
    CHECK_THROWS_AS(attention::forward<float>(device, ht::kernel::attention_forward<float>{x, other, other, x}),
                    ht::shape_error);
    const ht::view<float, 4> many(nullptr, {1 << 20, 1 << 20, 8, 1});
    CHECK_THROWS_AS(attention::forward<float>(device, ht::kernel::attention_forward<float>{many, many, many, many}),
                    ht::shape_error);
}

TEST_CASE("attention on a GPU in many schedules, and with damage") {
    SUBCASE("matrix kernels") {
        const support::problem<bfloat16> p({1, 66, 130, 2, 1, 8, causal}, layout::heads_first_chunks);
        emulator::check_kernels(emulator::same_in_all_schedules<bfloat16>(p));
    }
    SUBCASE("matrix kernels, wide heads") {
        const support::problem<float16> p({1, 34, 100, 1, 1, 72, full}, layout::heads_first_chunks);
        emulator::check_damages(emulator::same_in_all_schedules<float16>(p));
    }
    SUBCASE("plain kernels") {
        const support::problem<float> p({1, 34, 35, 1, 1, 4, causal}, layout::heads_first);
        emulator::check_kernels(emulator::same_in_all_schedules<float>(p));
    }
}

TEST_CASE("attention on a GPU: wide heads' kernel by keys has the bits of the narrow one; schedules, damage") {
    using namespace ht::kernel::on_device;
    const support::problem<bfloat16> p({1, 35, 34, 2, 1, 40, full}, layout::heads_first_chunks);
    emulator::device device;
    const auto want = support::outcome_of<bfloat16>(p, device), to = support::outcome_of<bfloat16>(p, device);
    const ht::view<const float, 4> logsumexp(want.logsumexp.data(), {1, 2, 35, 2});
    const attention_problem problem = describe_attention({1, 35, 34, 2, 1, 40}, p.options, {});
    std::vector<query_term> terms(static_cast<std::size_t>(query_term_count(problem)));
    const auto vectors = []<class T>(const ht::view<T, 4>& v) { return vectors_of(v, {}); };
    const auto operands = [&](const ht::view<bfloat16, 4>& v) { return vectors(ht::view<const bfloat16, 4>(v)); };
    device.launch(query_terms_kernel<bfloat16, 8>{operands(want.o.view),
                                                  operands(p.d_o.view),
                                                  ht::simt::span_of(logsumexp),
                                                  {terms.data(), query_term_count(problem)},
                                                  problem});
    const attention_score_gradients<bfloat16> slopes{operands(p.x.q.view),
                                            operands(p.d_o.view),
                                            operands(p.x.k.view),
                                            operands(p.x.v.view),
                                            {terms.data(), query_term_count(problem)},
                                            vectors(to.d.q.view),
                                            vectors(to.d.k.view),
                                            vectors(to.d.v.view),
                                            problem};
    emulator::check_kernels([&](emulator::device& d) {
        for (const auto& v : {to.d.k.view, to.d.v.view}) {
            for (extent i = 0; i < v.extent_of(1); ++i) std::fill_n(&v(0, i, 0, 0), v.extent_of(3), bfloat16(9.0f));
        }
        d.launch(wide_attention_backward_kernel<bfloat16, 64, 2, 16>{slopes});
        return to.d.same_bits(want.d);
    });
}

}  // namespace emulator_kernel_attention_tests
