// SPDX-License-Identifier: MIT
/// \file
/// Gathering along an axis on the emulated GPU.
#include <cmath>

#include <halftone/kernel/gather/device.hpp>

#include <emulator/damage.hpp>

#include "kernel/gather/checks.hpp"

namespace emulator_kernel_gather_tests {

using namespace gather_checks;
namespace emulator = ht::emulator;

TEST_CASE("gather, index_select, scatter_add, index_add on a GPU: as defined") {
    emulator::device device;
    all(device);
    refuses(device);
}

TEST_CASE("scatter_add on a GPU: the same bits in every schedule") {
    emulator::device first{{.seed = 1}}, second{{.seed = 1000, .resident_blocks = 7}};
    CHECK(long_sums(first) == long_sums(second));
}

TEST_CASE("gather on a GPU: an index outside the axis gives NaN, and adds nothing") {
    emulator::device device;
    const guarded<float> x(std::vector<float>{1, 2, 3, 4, 5, 6}), y(4), sums(std::vector<float>(6, 1.0f));
    const guarded<std::int32_t> index(std::vector<std::int32_t>{0, 3, -1, 2});
    const ht::shape<2> s{2, 3}, places{2, 2};
    ht::gather(device, x.const_view(s), ht::axes<1>, index.const_view(places), y.view(places));
    CHECK((y[0] == 1 && std::isnan(y[1]) && std::isnan(y[2]) && y[3] == 6));
    const guarded<float> from(std::vector<float>{10, 20, 30, 40});
    ht::scatter_add(device, from.const_view(places), ht::axes<1>, index.const_view(places), sums.view(s));
    const guarded<float> want(std::vector<float>{11, 1, 1, 1, 1, 41});
    CHECK(sums.same_bits(want));
}

}  // namespace emulator_kernel_gather_tests
