// SPDX-License-Identifier: MIT
/// \file
/// Attention's forward pass by warpgroups on the emulated GPU.
#include <memory>
#include <string>

#include <emulator/damage.hpp>

#include "kernel/attention/warpgroup_checks.hpp"

namespace emulator_kernel_attention_warpgroup_tests {

namespace ht = halftone;
namespace emulator = ht::emulator;
using namespace ht::kernel::on_device;
using ht::bfloat16;
using ht::extent;
using ht::float16;
using support::attention_sizes;
using support::bounds;
using support::layout;
using support::outcome;
using support::problem;

constexpr auto causal = ht::attention_mask::causal;
constexpr auto full = ht::attention_mask::full;
using three_warpgroups = warpgroup_attention_tiling<64, 3, 4, true>;
/// Warpgroups that do not take turns: every barrier is necessary. The order of turns only affects speed.
using three_at_once = warpgroup_attention_tiling<64, 3, 4, false>;

ht::simt::architecture hopper(int multiprocessors) {
    ht::simt::architecture a = ht::simt::architecture_of(90);
    a.multiprocessors = multiprocessors;
    return a;
}

TEST_CASE("attention by warpgroups is within bounds") {
    emulator::device device({}, hopper(2));
    SUBCASE("bfloat16") {
        support::for_each_warpgroup_problem(
            [&](const auto&... one) { support::check_warpgroups<bfloat16>(device, one...); });
        CHECK(device.count().warpgroup_mmas > 0);
        CHECK(device.count().bank_conflicts == 0);
    }
    SUBCASE("float16") {
        support::check_warpgroups<float16>(device, {2, 65, 300, 4, 2, 40, causal}, layout::heads_first_chunks,
                                           bounds::telling);
    }
    SUBCASE("on matrix units that truncate sums") {
        device.how() = {.check = emulator::checking::values_only, .mma = emulator::accumulation::truncating};
        support::check_warpgroups<bfloat16>(device, {1, 100, 130, 1, 1, 64, causal}, layout::heads_first_chunks,
                                            bounds::telling);
        support::check_warpgroups<bfloat16>(device, {1, 33, 200, 1, 1, 128, full}, layout::heads_first_chunks,
                                            bounds::telling);
    }
    SUBCASE("scores of ten thousand") {
        support::check_warpgroups<bfloat16>(device, {1, 70, 170, 1, 1, 64, causal}, layout::heads_first_chunks,
                                            bounds::may_hide, 10000);
    }
}

TEST_CASE("attention by warpgroups: the bits of a query do not depend on the tile size and on other queries") {
    const problem<bfloat16> p({2, 200, 330, 2, 1, 64, causal}, layout::heads_first_chunks);
    emulator::device device({}, hopper(3));
    const outcome<bfloat16> two = support::forward_by_warpgroups(p, device),
                            three = support::forward_by_tiling<bfloat16, three_warpgroups>(p, device);
    CHECK(support::same_forward(two, three));

    problem<bfloat16> last({2, 1, 330, 2, 1, 64, causal}, layout::heads_first_chunks);
    last.x.k = p.x.k, last.x.v = p.x.v;
    for (extent b = 0; b < 2; ++b) {
        for (extent h = 0; h < 2; ++h) std::copy_n(&p.x.q.view(b, 199, h, 0), 64, &last.x.q.view(b, 0, h, 0));
    }
    const outcome<bfloat16> alone = support::forward_by_warpgroups(last, device);
    for (extent b = 0; b < 2; ++b) {
        for (extent h = 0; h < 2; ++h) {
            CHECK(std::equal(&alone.o.view(b, 0, h, 0), &alone.o.view(b, 0, h, 0) + 64, &two.o.view(b, 199, h, 0),
                             [](bfloat16 x, bfloat16 y) { return x.bits() == y.bits(); }));
        }
    }
}

TEST_CASE("attention by warpgroups: hidden values have no effect, NaNs of visible ones propagate") {
    emulator::device device({.check = emulator::checking::values_only}, hopper(2));
    const auto run = [&](const problem<bfloat16>& p) { return support::forward_by_warpgroups(p, device); };
    support::check_hidden_forward<bfloat16>({1, 140, 150, 2, 1, 64, causal}, {20, 149}, run);
    support::check_hidden_forward<bfloat16>({2, 18, 20, 1, 1, 128, causal}, {17}, run);

    // The first query sees only scores of minus infinity: its softmax is not defined.
    problem<bfloat16> p({1, 9, 12, 1, 1, 16, causal}, layout::heads_first_chunks);
    p.x.q.view(0, 0, 0, 0) = bfloat16(1.0f);
    for (extent j = 0; j < 4; ++j) p.x.k.view(0, j, 0, 0) = bfloat16(-std::numeric_limits<float>::infinity());
    CHECK(support::poison_check<bfloat16>::shows(run(p).o.view, 0, 0, 0));
}

TEST_CASE("attention by warpgroups: the reason where they are not used") {
    const auto why_not = [](const attention_sizes& s, layout way, int architecture) -> std::string {
        const problem<bfloat16> p(s, way);
        emulator::device device({}, ht::simt::architecture_of(architecture));
        const char* why = nullptr;
        support::outcome<bfloat16>(p, [&](const auto& forward, const auto&) {
            why = plan_attention(case_of<bfloat16>(device, ht::detail::check_attention(forward), forward))
                      .families[0]
                      .why_not;
        });
        return why == nullptr ? "" : why;
    };
    CHECK(why_not({1, 2, 2, 1, 1, 64, full}, layout::fused_chunks, 90) == "");
    CHECK(why_not({1, 2, 2, 1, 1, 64, full}, layout::fused_chunks, 100) ==
          "the GPU or the code for it is none of sm_90a");
    CHECK(why_not({1, 2, 2, 1, 1, 20, full}, layout::fused_chunks, 90) == "head_size is not a multiple of 8");
    CHECK(why_not({1, 2, 2, 1, 1, 136, full}, layout::fused_chunks, 90) == "head_size is above 128");
    CHECK(why_not({1, 2, 2, 1, 1, 64, full}, layout::heads_first, 90) ==
          "some tensor's distances are not positive multiples of 16 bytes");
    // Keys that all heads share, with a stride of 0, have no map; strides of axes with one element do not matter.
    const problem<bfloat16> p({1, 1, 5, 2, 2, 16, full}, layout::heads_first_chunks);
    ht::shape<4> distances = p.x.k.view.strides();
    distances[2] = 0;
    CHECK_FALSE(has_tensor_map(ht::view<bfloat16, 4>(p.x.k.view.data(), p.x.k.view.shape(), distances)));
    CHECK(has_tensor_map(ht::view<bfloat16, 4>(p.x.k.view.data(), {1, 1, 1, 16}, {3, 0, -5, 1})));
}

TEST_CASE("attention by warpgroups: the blocks of a grid compute each tile once") {
    for (const bool in_pairs : {false, true}) {
        for (const int parts : {1, 2, 5, 8}) {
            for (const int heads : {1, 3, 7}) {
                for (const int blocks : {1, 2, 4, 9, 40}) {
                    const attention_schedule s{parts, heads, 2, std::min(blocks, parts * heads), in_pairs};
                    std::vector<int> count(static_cast<std::size_t>(parts * heads));
                    for (int block = 0; block < s.blocks; ++block) {
                        for (int turn = 0; turn < s.turns(); ++turn) {
                            const attention_tile t = s.tile(block, turn);
                            if (t.part >= 0) ++count[static_cast<std::size_t>(t.head * parts + t.part)];
                        }
                    }
                    CHECK(std::all_of(count.begin(), count.end(), [](int n) { return n == 1; }));
                }
            }
        }
    }
}

/// Whether the forward pass has the same bits in a schedule as in the first.
template <class Run>
auto same_in_all(const problem<bfloat16>& p, const Run& run) {
    emulator::device on({}, hopper(1));
    const std::shared_ptr<const outcome<bfloat16>> first(new outcome<bfloat16>(run(p, on)));
    support::check_forward(p, *first, bounds::may_hide);
    return [&p, first, run](emulator::device& d) { return support::same_forward(run(p, d), *first); };
}

TEST_CASE("attention by warpgroups in many schedules, and with damage") {
    const problem<bfloat16> p({1, 200, 330, 1, 1, 8, causal}, layout::heads_first_chunks);
    const auto run = [](const problem<bfloat16>& one, emulator::device& d) {
        return support::forward_by_tiling<bfloat16, three_at_once>(one, d);
    };
    emulator::check_kernels(same_in_all(p, run), hopper(1));
}
TEST_CASE("attention by warpgroups that take turns, in many schedules") {
    const problem<bfloat16> p({1, 130, 400, 1, 1, 72, full}, layout::heads_first_chunks);
    const auto run = [](const problem<bfloat16>& one, emulator::device& d) {
        return support::forward_by_warpgroups(one, d);
    };
    emulator::check_schedules(same_in_all(p, run), hopper(1));
}

}  // namespace emulator_kernel_attention_warpgroup_tests
