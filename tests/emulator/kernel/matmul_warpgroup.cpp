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
    const simt::architecture gpu = device.architecture();
    REQUIRE(on_device::cut_matmul(gpu, s.rows, s.columns, s.depth, on_device::wgmma_tiles).time <
            on_device::cut_matmul(gpu, s.rows, s.columns, s.depth).time);
    const std::vector<double> want = exact_product(s);
    multiply_exactly<ht::amp_bf16, bfloat16, bfloat16, bfloat16>(device, s, want, layouts[0], layouts[1], layouts[0]);
    CHECK(device.launches() == 1);
    multiply_exactly<ht::amp_fp16, float16, float16, float>(device, s, want, layouts[2], layouts[3], layouts[2]);
    CHECK(device.launches() == 1 + 3);
    multiply_exactly<ht::amp_bf16, ht::float8_e5m2, ht::float8_e4m3, float>(device, s, want, layouts[0], layouts[3], layouts[0]);
    CHECK(device.launches() == 1 + 3 + 3);  // copies that convert eight bits to 16
}

}  // namespace emulator_kernel_matmul_warpgroup_tests
