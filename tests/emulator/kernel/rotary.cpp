// SPDX-License-Identifier: MIT
/// \file
/// Rotary embedding on the emulated GPU.
#include <emulator/damage.hpp>

#include <halftone/kernel/rotary/device.hpp>

#include "kernel/rotary/checks.hpp"

namespace emulator_kernel_rotary_tests {

using namespace rotary_checks;
namespace emulator = ht::emulator;

TEST_CASE_TEMPLATE("rotary on a GPU: as its definition, in both layouts, of strided heads and parts of them", T, float,
                   bfloat16, double) {
    emulator::device device;
    for (const extent head_size : {2, 6, 8, 16, 30, 64, 128}) {
        CAPTURE(head_size);
        for_each_problem<T>(device, head_size, [](auto& d, const problem& p) { CHECK(is_right<T>(d, p)); });
    }
}

TEST_CASE("rotary on a GPU: a rotation and its inverse, and wrong arguments") {
    emulator::device device;
    turns_and_back(device);
    refuses(device);
}

TEST_CASE("rotary on a GPU: a token with a position outside the table is NaN, and the others are right") {
    emulator::device device;
    const guarded<float> x(std::vector<float>(12, 1.0f)), table(8);
    ht::fill_rotary_table(ht::view<float, 2>(table.data(), {2, 4}));
    const ht::view<float, 4> four(x.data(), {1, 3, 1, 4});
    const std::int32_t ids[] = {0, -1, 2};
    ht::rotary(device, four, ht::view<float, 2>(table.data(), {2, 4}), four, {}, ht::const_view<std::int32_t, 2>(ids, {1, 3}));
    for (extent i = 0; i < 12; ++i) CHECK(std::isnan(x[i]) == (i >= 4));
}

TEST_CASE("rotary on a GPU: right in every schedule") {
    emulator::check_kernels([](emulator::device& device) {
        return is_right<bfloat16>(device, {.time = 5, .heads = 4, .head_size = 64, .turned = 3});
    });
}

}  // namespace emulator_kernel_rotary_tests
