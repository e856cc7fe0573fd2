// SPDX-License-Identifier: MIT
/// \file
/// Attention's backward pass by warpgroups (wgmma) on the emulated GPU with the properties of a Hopper.
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "emulator/kernel/attention_checks.hpp"
#include "kernel/attention/backward_warpgroup_checks.hpp"
#include "kernel/attention/hidden.hpp"

namespace emulator_kernel_attention_backward_warpgroups_tests {

namespace ht = halftone;
namespace emulator = ht::emulator;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::attention_sizes;
using support::layout;

constexpr auto full = ht::attention_mask::full;
constexpr auto causal = ht::attention_mask::causal;

TEST_CASE("attention backward by warpgroups is within bounds") {
    SUBCASE("sums rounded to nearest") {
        emulator::device device({}, ht::simt::architecture_of(90));
        support::check_all_gradients_by_warpgroups(device);
        CHECK(device.count().warpgroup_mmas > 0);
        CHECK(device.count().bank_conflicts == 0);
    }
    SUBCASE("sums truncated") {
        emulator::device device({.check = emulator::checking::values_only, .mma = emulator::accumulation::truncating},
                                ht::simt::architecture_of(90));
        support::check_gradients_by_warpgroups<bfloat16>(device, {1, 70, 140, 1, 1, 64, causal},
                                                         layout::heads_first_chunks);
    }
}

TEST_CASE("attention backward by warpgroups: hidden values have no effect, NaNs of visible ones propagate") {
    const auto hidden = [](const attention_sizes& sizes, const std::vector<extent>& queries,
                           const std::vector<extent>& keys) {
        support::problem<bfloat16> p(sizes, layout::heads_first_chunks);
        support::check_hidden(
            p, support::seen_of(sizes), queries, keys,
            [&](const support::problem<bfloat16>& now) {
                emulator::device device({.check = emulator::checking::values_only}, ht::simt::architecture_of(90));
                return support::gradients_by_warpgroups_of(now, device);
            },
            2);
    };
    hidden({1, 70, 80, 2, 1, 64, causal}, {0, 20, 66}, {33, 79});
    hidden({1, 18, 20, 1, 1, 128, causal}, {1}, {17});
}

TEST_CASE("attention backward by warpgroups: the reason where they are not used") {
    const auto why_not = [](const attention_sizes& s, layout way, int architecture) -> std::string {
        const support::problem<bfloat16> p(s, way);
        emulator::device device({}, ht::simt::architecture_of(architecture));
        const char* sentence = nullptr;
        support::outcome<bfloat16>(p, [&](const auto&, const auto& backward) {
            using namespace ht::kernel::on_device;
            sentence = plan_attention(case_of<bfloat16>(device, ht::detail::check_attention(backward), backward))
                           .families[0]
                           .why_not;
        });
        return sentence == nullptr ? "" : sentence;
    };
    CHECK(why_not({1, 2, 2, 1, 1, 64, full}, layout::fused_chunks, 90) == "");
    CHECK(why_not({1, 2, 2, 1, 1, 40, full}, layout::heads_first_chunks, 90) == "");
    CHECK(why_not({1, 2, 2, 1, 1, 32, full}, layout::fused_chunks, 90) ==
          "head_size is at most 32: most of the products would be of zeros");
    CHECK(why_not({1, 0, 2, 1, 1, 64, full}, layout::heads_first_chunks, 90) == "there are no queries or no keys");
    CHECK(why_not({1, 2, 2, 1, 1, 64, full}, layout::heads_first, 90) != "");
    CHECK(why_not({1, 2, 2, 1, 1, 64, full}, layout::fused_chunks, 80) != "");
}

TEST_CASE("attention by warpgroups is chosen for heads of 40 to 128, its forward pass for smaller heads, too") {
    const auto products = [](extent head_size) {  // launches of the forward pass, of the terms, of dq, and of dk and dv
        const support::problem<bfloat16> p({1, 5, 9, 1, 1, head_size, causal}, layout::heads_first_chunks);
        emulator::device device({}, ht::simt::architecture_of(90));
        CHECK(support::outcome_of<bfloat16>(p, device).intact());
        std::vector<bool> are_there;
        for (const auto& launch : device.each_launch()) are_there.push_back(launch.warpgroup_mmas > 0);
        return are_there;
    };
    CHECK(products(64) == std::vector<bool>{true, false, true, true});
    CHECK(products(128) == std::vector<bool>{true, false, true, true});
    CHECK(products(32) == std::vector<bool>{true, false, false, false});
    CHECK(products(136) == std::vector<bool>{false, false, false, false});
}

/// The gradients alone, in many schedules and with damage.
template <class T>
auto same_gradients(const support::problem<T>& p) {
    emulator::device on({}, ht::simt::architecture_of(90));
    const std::shared_ptr<const support::outcome<T>> first(
        new support::outcome<T>(support::gradients_by_warpgroups_of(p, on)));
    return [&p, first](emulator::device& d) {
        using namespace ht::kernel::on_device;
        const support::operands<T> to(p.way, p.sizes);
        const ht::view<float, 4> sums(first->logsumexp.data(), {p.sizes.batch, p.sizes.heads, p.sizes.queries, 2});
        const ht::kernel::attention_backward<T> a{p.x.q.view, p.x.k.view, p.x.v.view, first->o.view, sums,
                                                  p.d_o.view, to.q.view,  to.k.view,  to.v.view,     p.options};
        gradients_by_warpgroups(d, a, describe_attention(ht::detail::check_attention(a), a.options, {}));
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

}  // namespace emulator_kernel_attention_backward_warpgroups_tests
