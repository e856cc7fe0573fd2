// SPDX-License-Identifier: MIT
#include "kernel/matmul/warpgroup_checks.hpp"

#include <emulator/damage.hpp>

namespace emulator_kernel_matmul_warpgroup_tests {

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
TEST_CASE("matmul by warpgroups: unaligned rows of c") {
    emulator::device device({}, hopper(2));
    warpgroups_store_any_rows(device);
}
TEST_CASE("matmul by warpgroups with damage") {
    emulator::check_kernels(
        [](emulator::device& d) {
            return warpgroups_multiply<bfloat16, bfloat16>(d, {140, 6 * 64, 200}, {matmul_tile::wide, 1}, 0, 1, 0);
        },
        hopper(2));
}
TEST_CASE("matmul by warpgroups with damage: results that are not stored by bulk copies") {
    emulator::check_kernels(
        [](emulator::device& d) {
            return warpgroups_multiply<bfloat16, bfloat16>(d, {130, 5 * 64, 203}, {matmul_tile::wide, 1}, 1, 0, 2);
        },
        hopper(1));
}
TEST_CASE("matmul by warpgroups with damage: every eighth row of c") {
    emulator::check_kernels(
        [](emulator::device& d) {
            // The last set's rows begin and end at multiples of 16 bytes, so that the last store is a bulk copy.
            return warpgroups_multiply<bfloat16, bfloat16>(d, {40, 5 * 64, 184}, {matmul_tile::wide, 1}, 0, 1,
                                                           {order::rows, 1, 1});
        },
        hopper(1));
}
TEST_CASE("matmul on a Hopper: large products are cut into warpgroups' tiles, and unaligned ones are copied first") {
    emulator::device device({}, hopper(1));
    const sizes s{520, 600, 520};
    REQUIRE(on_device::plan_matmul(device.architecture(), s.rows, s.columns, s.depth, matmul_tile::widest).tile > matmul_tile::large);
    const std::vector<double> want = exact_product(s);
    multiply_exactly<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(device, s, want, layouts[0], layouts[1], layouts[0]);
    CHECK(device.launches() == 1);
    multiply_exactly<ht::amp_fp16, float16, float16, float>(device, s, want, layouts[2], layouts[3], layouts[2]);
    CHECK(device.launches() == 1 + 3);
    multiply_exactly<ht::amp_bf16, ht::float8_e5m2, ht::float8_e4m3, float>(device, s, want, layouts[0], layouts[3], layouts[0]);
    CHECK(device.launches() == 1 + 3 + 3);  // copies that convert eight bits to 16
}
TEST_CASE("matmul on a Hopper: rows of c in sets, or one by one, whichever takes less time") {
    using on_device::along;
    const auto way_of = [&](int m, int n, int k, along of_b, extent offset = 0) {
        const auto lines = [](int outer, int depth, along axis) {
            const int length = (axis == along::depth ? depth : outer) + 7;
            return on_device::product_operand<bfloat16>{{}, length / 8 * 8, outer, depth, axis, on_device::row_access::chunks};
        };
        const auto end = ht::epilogue_of(ht::plain{}, ht::view<bfloat16, 2>(reinterpret_cast<bfloat16*>(2 * offset), {m, n}));
        return on_device::plan_warpgroups(hopper(132), lines(m, k, along::depth), lines(n, k, of_b), end.results);
    };
    const auto is = [](const on_device::warpgroup_plan& way, bool in_bulk, int sets, int offset) {
        return way.storing.in_bulk == in_bulk && way.storing.sets == sets && way.storing.most_offset == offset;
    };
    CHECK(is(way_of(8192, 50304, 768, along::depth), true, 1, 0));
    CHECK(is(way_of(8192, 50304, 768, along::depth, 3), true, 1, 3));
    CHECK(is(way_of(8192, 50304, 768, along::outer, 3), false, 1, 0));
    CHECK(is(way_of(8192, 50257, 768, along::depth), true, 8, 7));
    CHECK(is(way_of(8192, 50257, 768, along::outer), false, 1, 0));
    CHECK(is(way_of(130, 50257, 768, along::depth), false, 1, 0));  // sets would have 8 tiles of rows, not 2
}

}  // namespace emulator_kernel_matmul_warpgroup_tests
