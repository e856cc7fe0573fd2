// SPDX-License-Identifier: MIT
#include "kernel/matmul/warpgroup_checks.hpp"

#include <emulator/damage.hpp>

namespace {

using namespace matmul_test;
namespace emulator = ht::emulator;
namespace simt = ht::simt;
using on_device::matmul_tile;

simt::architecture hopper(int multiprocessors) {
    simt::architecture a = simt::architecture_of(90);
    a.multiprocessors = multiprocessors;
    return a;
}

TEST_CASE("matmul by warpgroups: every pair of layouts, edges, parts") {
    emulator::device device({}, hopper(2));
    warpgroups_in_all_layouts(device);
}
TEST_CASE("matmul by warpgroups: epilogues") {
    emulator::device device({}, hopper(3));
    warpgroups_finish_all(device);
}
TEST_CASE("matmul by warpgroups: lines that begin anywhere") {
    emulator::device device({}, hopper(2));
    warpgroups_take_any_lines(device);
}
TEST_CASE("matmul by warpgroups with damage") {
    emulator::check_kernels(
        [](emulator::device& d) {
            return warpgroups_multiply<bfloat16, bfloat16>(d, {140, 6 * 64, 200}, {matmul_tile::wide, 1}, 0, 1, 0);
        },
        hopper(2));
}
TEST_CASE("matmul by warpgroups: damaged, results that are not copied") {
    emulator::check_kernels(
        [](emulator::device& d) {
            return warpgroups_multiply<bfloat16, bfloat16>(d, {130, 5 * 64, 203}, {matmul_tile::wide, 1}, 1, 0, 2);
        },
        hopper(1));
}
TEST_CASE("matmul by warpgroups, damaged: every eighth row, and every eighth k") {
    constexpr auto by_rows = order::rows, by_columns = order::columns;
    emulator::check_kernels(
        [](emulator::device& d) {
            return warpgroups_multiply<bfloat16, bfloat16>(d, {140, 6 * 64, 77}, {matmul_tile::narrow, 1}, {by_rows, 1, 3},
                                                           {by_columns, 0, 0}, {by_rows, 0, 1}, {8, 1});
        },
        hopper(3));
    emulator::check_kernels(
        [](emulator::device& d) {
            return warpgroups_multiply<bfloat16, float>(d, {131, 100, 69}, {matmul_tile::narrow, 1}, {by_columns, 0, 1},
                                                        {by_rows, 0, 0}, {by_rows, 0, 0}, {1, 8});
        },
        hopper(2));
}
TEST_CASE("matmul on a Hopper: large products are cut into warpgroups' tiles, and rows that begin anywhere are taken in sets") {
    emulator::device device({}, hopper(1));
    const sizes s{520, 600, 520};
    REQUIRE(on_device::plan_matmul(device.architecture(), s.rows, s.columns, s.depth, matmul_tile::widest).tile > matmul_tile::large);
    const std::vector<double> want = exact_product(s);
    multiply_exactly<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(device, s, want, layouts[0], layouts[1], layouts[0]);
    CHECK(device.launches() == 1);
    multiply_exactly<ht::amp_fp16, float16, float16, float>(device, s, want, layouts[2], layouts[3], layouts[2]);
    CHECK(device.launches() == 1 + 2);  // a copy of b, whose columns are not taken in sets
    multiply_exactly<ht::amp_bf16, ht::float8_e5m2, ht::float8_e4m3, float>(device, s, want, layouts[0], layouts[3], layouts[0]);
    CHECK(device.launches() == 1 + 2 + 3);  // copies that give each number 16 bits
}
TEST_CASE("matmul on a Hopper: sets of lines, or copies, whichever take less time") {
    using on_device::along;
    const auto lines = [](int outer, int depth, along axis) {
        const int length = axis == along::depth ? depth : outer;
        return on_device::product_operand<bfloat16>{{}, length, outer, depth, axis, on_device::row_access::elements};
    };
    const auto way_of = [&](int m, int n, int k, along of_a, along of_b) {
        const auto end = ht::epilogue_of(ht::plain{}, ht::view<bfloat16, 2>(nullptr, {m, n}));
        return on_device::choose_warpgroup_way(hopper(132), lines(m, k, of_a), lines(n, k, of_b), end);
    };
    const auto is = [](const on_device::warpgroup_way& way, on_device::line_sets sets, bool copies_a, bool copies_b) {
        return way.sets.rows == sets.rows && way.sets.depth == sets.depth && way.copies_a == copies_a && way.copies_b == copies_b;
    };
    CHECK(is(way_of(8192, 50304, 768, along::depth, along::depth), {1, 1}, false, false));
    CHECK(is(way_of(8192, 50257, 768, along::depth, along::depth), {8, 1}, false, false));
    CHECK(is(way_of(8192, 768, 50257, along::depth, along::outer), {8, 1}, false, false));
    CHECK(is(way_of(50257, 768, 8192, along::outer, along::outer), {1, 8}, false, false));
    CHECK(is(way_of(4096, 4096, 4095, along::depth, along::depth), {8, 1}, false, true));
    CHECK(is(way_of(4096, 4095, 4095, along::depth, along::outer), {8, 1}, false, true));
    CHECK(is(way_of(4095, 4096, 4096, along::outer, along::depth), {1, 1}, true, false));
    CHECK(is(way_of(130, 4096, 4095, along::depth, along::outer), {1, 1}, true, false));  // sets would have 8 tiles of rows, not 2
    CHECK(is(way_of(4095, 4096, 264, along::outer, along::outer), {1, 1}, true, false));  // and 8 panels, not 5
    // Sets of rows leave the parts, and so the bits, as they are with aligned rows.
    const auto in_parts = way_of(1024, 769, 8191, along::depth, along::depth);
    CHECK((in_parts.sets.rows == 8 && in_parts.plan.parts == on_device::plan_matmul(hopper(132), 1024, 769, 8191, matmul_tile::widest).parts));
}

}  // namespace
