// SPDX-License-Identifier: MIT
/// \file
/// Steps over the rows of sparse gradients on the emulated GPU.
#include <halftone/kernel/optimizer_step/device.hpp>

#include <emulator/damage.hpp>

#include "kernel/optimizer_step/rows_checks.hpp"

namespace emulator_kernel_update_rows_tests {

using namespace rows_checks;
namespace emulator = ht::emulator;

TEST_CASE("steps over rows on a GPU: the bits of a dense step in these rows, and no other byte") {
    emulator::device device{{.check = emulator::checking::values_only}};
    for (const extent width : {3, 8, 67}) equals_dense<float, float>(device, width, placements[width % 4 == 0 ? 0 : 1]);
    for (const extent width : {1, 3, 4, 6, 68}) equals_dense<bfloat16, bfloat16>(device, width, placement::aligned);
}

TEST_CASE("steps over rows on a GPU: skipped steps, wrong arguments") {
    emulator::device device;
    skips_and_refuses(device);
}

TEST_CASE("steps over rows on a GPU: right in every schedule, and every damage is found") {
    // More rows than one block processes.
    std::vector<std::int32_t> touched;
    for (std::int32_t r = 0; r < 150; ++r) touched.push_back(2 * r);
    for_each_rule<float, float>([&]<class T>(std::type_identity<T>) {
        const gradient g(300, 8, touched, 16);
        const T want(300, 8, placement::aligned);
        emulator::device first;
        step_dense(first, want, g);
        emulator::check_kernels([&](emulator::device& device) {
            const T here(300, 8, placement::aligned);
            step_rows(device, here, g);
            bool right = here.intact();
            for (const std::int32_t r : touched) right = right && here.row(r) == want.row(r);
            return right;
        });
    });
}

}  // namespace emulator_kernel_update_rows_tests
