// SPDX-License-Identifier: MIT
/// \file
/// Attention's GPU kernels on the emulated machine.
#include <algorithm>
#include <memory>

#include <doctest/doctest.h>

#include <halftone/kernel/attention/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/attention/checks.hpp"

namespace {

namespace ht = halftone;
namespace emulator = ht::emulator;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::attention_sizes;
using support::bounds;
using support::guarded;
using support::layout;
using attention = ht::kernel::attention<emulator::device>;

constexpr auto full = ht::attention_mask::full;
constexpr auto causal = ht::attention_mask::causal;

template <class Compute, class T>
void check_problem(const attention_sizes& sizes, layout way, bounds kind = bounds::telling, double deviation = 1) {
    support::check_problem<Compute, T>(sizes, way, kind, deviation,
                                       [](const support::problem<T>& p, const auto& check) {
                                           emulator::device device;
                                           check(support::outcome_of<Compute>(p, device));
                                           CHECK(device.count().bank_conflicts == 0);
                                       });
}

// Batch, queries, keys, query heads, key heads, head size.

template <class T>
void check_matrix_kernels() {
    check_problem<T, T>({1, 1, 1, 2, 2, 64, causal}, layout::fused_chunks, bounds::may_hide);
    check_problem<T, T>({2, 17, 17, 2, 2, 16, causal}, layout::fused_chunks);
    check_problem<T, T>({1, 64, 64, 2, 2, 32, full}, layout::fused_chunks);
    check_problem<T, T>({1, 65, 65, 1, 1, 64, causal}, layout::heads_first_chunks);
    check_problem<T, T>({1, 130, 130, 1, 1, 64, causal}, layout::fused_chunks);
    check_problem<T, T>({1, 17, 130, 1, 1, 80, full}, layout::heads_first_chunks);
    check_problem<T, T>({1, 65, 130, 1, 1, 96, causal}, layout::heads_first_chunks);
    check_problem<T, T>({1, 130, 130, 1, 1, 128, causal}, layout::fused_chunks);
    check_problem<T, T>({2, 65, 70, 4, 2, 24, causal}, layout::heads_first_chunks);
    check_problem<T, T>({1, 33, 65, 3, 1, 128, full}, layout::heads_first_chunks);
}

TEST_CASE("attention on a GPU's matrix units is within bounds") {
    SUBCASE("bfloat16") { check_matrix_kernels<bfloat16>(); }
    SUBCASE("float16") { check_matrix_kernels<float16>(); }
}

TEST_CASE("attention on a GPU without its matrix units is within bounds") {
    SUBCASE("float") {
        check_problem<float, float>({1, 1, 1, 2, 2, 64, causal}, layout::fused, bounds::may_hide);
        check_problem<float, float>({2, 17, 17, 2, 2, 16, full}, layout::fused);
        check_problem<float, float>({1, 64, 65, 1, 1, 32, causal}, layout::heads_first);
        check_problem<float, float>({1, 9, 40, 1, 1, 128, full}, layout::heads_first);
        check_problem<float, float>({1, 5, 34, 1, 1, 256, causal}, layout::contiguous, bounds::may_hide);
    }
    SUBCASE("bfloat16, unaligned") {
        check_problem<bfloat16, bfloat16>({1, 33, 70, 4, 2, 24, causal}, layout::contiguous);
        check_problem<bfloat16, bfloat16>({1, 17, 17, 1, 1, 80, causal}, layout::fused);
        check_problem<bfloat16, bfloat16>({1, 5, 9, 1, 1, 3, full}, layout::fused_chunks, bounds::may_hide);
        check_problem<bfloat16, bfloat16>({1, 3, 5, 1, 1, 136, full}, layout::heads_first_chunks, bounds::may_hide);
    }
    SUBCASE("float16, unaligned") { check_problem<float16, float16>({1, 33, 33, 2, 2, 20, full}, layout::fused); }
    SUBCASE("float, products of bfloat16") {
        check_problem<bfloat16, float>({1, 33, 70, 1, 1, 64, causal}, layout::contiguous);
    }
}

TEST_CASE("attention on a GPU: scores of ten thousand and more") {
    for (const double deviation : {300.0, 10000.0}) {
        check_problem<float, float>({1, 9, 40, 1, 1, 16, full}, layout::contiguous, bounds::may_hide, deviation);
        check_problem<bfloat16, bfloat16>({1, 70, 70, 1, 1, 64, causal}, layout::fused_chunks, bounds::may_hide,
                                          deviation);
        check_problem<float16, float16>({1, 20, 70, 1, 1, 16, causal}, layout::heads_first_chunks, bounds::may_hide,
                                        deviation);
    }
}

TEST_CASE("attention on a GPU: one key's value is passed on as it is") {
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
                                                                                       {nullptr, {1, 1, 0}},
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

TEST_CASE("attention on a GPU: its scratch memory is as stated, and taken once") {
    emulator::device device;
    const support::problem<bfloat16> p({1, 70, 70, 2, 2, 16, causal}, layout::fused_chunks);
    ht::memory_usage& usage = device.memory().usage();
    const support::outcome<bfloat16> got(p, [&](const auto& forward, const auto& backward) {
        attention::forward<bfloat16>(device, forward);
        CHECK(usage.allocations() == 0);
        attention::backward<bfloat16>(device, backward);
        CHECK(usage.peak(ht::memory_kind::workspace) == attention::workspace_bytes(backward));
        const auto allocations = usage.allocations();
        attention::backward<bfloat16>(device, backward);
        CHECK(usage.allocations() == allocations);
    });
    CHECK(got.intact());
}

TEST_CASE("attention on a GPU refuses what its kernels cannot count") {
    emulator::device device;
    const ht::view<float, 4> x(nullptr, {1, extent{1} << 31, 1, 1});
    CHECK_THROWS_AS(attention::forward<float>(device, ht::kernel::attention_forward<float>{x, x, x, x}),
                    ht::shape_error);
    const ht::view<float, 4> other(nullptr, {1, 3, 1, 2});
    CHECK_THROWS_AS(attention::forward<float>(device, ht::kernel::attention_forward<float>{x, other, other, x}),
                    ht::shape_error);
}

/// Right, with the same bits in every schedule.
template <class T>
auto same_in_all_schedules(const support::problem<T>& p) {
    const support::attention_inputs inputs = p.inputs();
    const support::attention_results want = support::attention_by_definition(inputs);
    const support::attention_results bound = support::attention_bounds(inputs, want, support::roundings_of<T, T>());
    emulator::device device;
    const std::shared_ptr<const support::outcome<T>> first(new support::outcome<T>(support::outcome_of<T>(p, device)));
    check_within(*first, want, bound, bounds::telling);
    return [&p, first](emulator::device& d) { return support::outcome_of<T>(p, d).same_bits(*first); };
}

TEST_CASE("attention on a GPU in many schedules, and damaged") {
    SUBCASE("matrix kernels") {
        const support::problem<bfloat16> p({1, 66, 130, 2, 1, 8, causal}, layout::heads_first_chunks);
        emulator::check_kernels(same_in_all_schedules(p));
    }
    SUBCASE("matrix kernels, wide heads") {
        const support::problem<float16> p({1, 34, 100, 1, 1, 72, full}, layout::heads_first_chunks);
        emulator::check_damages(same_in_all_schedules(p));
    }
    SUBCASE("plain kernels") {
        const support::problem<float> p({1, 34, 35, 1, 1, 4, causal}, layout::heads_first);
        emulator::check_kernels(same_in_all_schedules(p));
    }
}

}  // namespace
