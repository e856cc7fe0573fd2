// SPDX-License-Identifier: MIT
/// \file
/// Attention's backward pass by warpgroups (wgmma) on the emulated GPU, which poses as a Hopper.
#include <memory>

#include <doctest/doctest.h>

#include "emulator/kernel/attention_checks.hpp"
#include "kernel/attention/hidden.hpp"

namespace {

namespace ht = halftone;
namespace emulator = ht::emulator;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::attention_sizes;
using support::bounds;
using support::layout;
using attention = ht::kernel::attention<emulator::device>;

constexpr auto full = ht::attention_mask::full;
constexpr auto causal = ht::attention_mask::causal;

/// Within bounds, and by warpgroups: kernels without them have no products of warpgroups.
template <class T>
void check(const attention_sizes& sizes, layout way, bounds kind = bounds::telling, const emulator::options& how = {}) {
    support::check_problem<T, T>(sizes, way, kind, 1, [&](const support::problem<T>& p, const auto& compare) {
        emulator::device device(how, ht::simt::architecture_of(90));
        const support::outcome<T> got(p, [&](const auto& forward, const auto& backward) {
            attention::forward<T>(device, forward);
            const long before = device.count().warpgroup_mmas;
            attention::backward<T>(device, backward);
            CHECK(device.count().warpgroup_mmas > before);
        });
        compare(got);
        CHECK(device.count().bank_conflicts == 0);
    });
}

// Batch, queries, keys, query heads, key heads, head size.

TEST_CASE("attention backward by warpgroups is within bounds") {
    SUBCASE("heads of 64") {
        check<bfloat16>({1, 1, 1, 2, 2, 64, causal}, layout::fused_chunks, bounds::may_hide);
        check<bfloat16>({1, 200, 200, 1, 1, 64, causal}, layout::fused_chunks);
        check<float16>({2, 20, 65, 1, 1, 64, full}, layout::heads_first_chunks);
        check<bfloat16>({1, 64, 64, 5, 5, 64, full}, layout::fused_chunks);  // one head more than go together
    }
    SUBCASE("heads of 128, and padded ones") {
        check<bfloat16>({1, 130, 130, 1, 1, 128, causal}, layout::fused_chunks);
        check<bfloat16>({1, 30, 70, 1, 1, 72, full}, layout::heads_first_chunks);
    }
    SUBCASE("query heads that share key heads, more keys than queries") {
        check<bfloat16>({2, 40, 70, 4, 2, 64, causal}, layout::heads_first_chunks);
        check<bfloat16>({1, 3, 140, 2, 1, 128, causal}, layout::heads_first_chunks, bounds::may_hide);
    }
    SUBCASE("units that cut sums off") {
        check<bfloat16>({1, 70, 140, 1, 1, 64, causal}, layout::heads_first_chunks, bounds::telling,
                        {.check = emulator::checking::values_only, .mma = emulator::accumulation::truncating});
    }
}

TEST_CASE("attention backward by warpgroups: what is hidden has no effect, what is seen shows") {
    const auto hidden = [](const attention_sizes& sizes, const std::vector<extent>& queries, const std::vector<extent>& keys) {
        support::problem<bfloat16> p(sizes, layout::heads_first_chunks);
        support::check_hidden(
            p, support::seen_of(sizes), queries, keys,
            [&](const support::problem<bfloat16>& now) {
                emulator::device device({.check = emulator::checking::values_only}, ht::simt::architecture_of(90));
                return support::outcome_of<bfloat16>(now, device);
            },
            2);
    };
    hidden({1, 70, 80, 2, 1, 64, causal}, {0, 20, 66}, {33, 79});
    hidden({1, 18, 20, 1, 1, 128, causal}, {1}, {17});
}

/// The gradients alone, in many schedules and with damage.
template <class T>
auto same_gradients(const support::problem<T>& p) {
    emulator::device on({}, ht::simt::architecture_of(90));
    const std::shared_ptr<const support::outcome<T>> first(new support::outcome<T>(support::outcome_of<T>(p, on)));
    return [&p, first](emulator::device& d) {
        const support::operands<T> to(p.way, p.sizes);
        const ht::view<float, 4> sums(first->logsumexp.data(), {p.sizes.batch, p.sizes.heads, p.sizes.queries, 2});
        attention::backward<T>(d, ht::kernel::attention_backward<T>{p.x.q.view, p.x.k.view, p.x.v.view, first->o.view, sums,
                                                                   p.d_o.view, to.q.view, to.k.view, to.v.view, p.options});
        return to.same_bits(first->d);
    };
}

TEST_CASE("attention backward by warpgroups in many schedules, and with damage") {
    SUBCASE("causal") {
        const support::problem<bfloat16> p({1, 330, 330, 1, 1, 64, causal}, layout::fused_chunks);
        emulator::check_kernels(same_gradients(p), ht::simt::architecture_of(90));
    }
    SUBCASE("heads of 128") {
        const support::problem<float16> p({1, 260, 260, 2, 1, 128, full}, layout::heads_first_chunks);
        emulator::check_damages(same_gradients(p), 5, ht::simt::architecture_of(90));
    }
}

}  // namespace
