// SPDX-License-Identifier: MIT
/// \file
/// The GPU kernels of sums over all elements on the emulated GPU.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/sum/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/sum/checks.hpp"

namespace emulator_kernel_sum_tests {

using namespace sum_checks;
namespace emulator = ht::emulator;
using sum = ht::kernel::sum<emulator::device>;

TEST_CASE("sum on a GPU: within its bound of the definition") {
    emulator::device device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent count : {1, 2, 5, 8, 9, 31, 33, 67, 100, 129, 257, 1021, 16384, 16385, 70001}) {
            within_bounds<float, float, float>(device, count, apart);
            within_bounds<bfloat16, float, float>(device, count, apart);
            within_bounds<float16, float16, float>(device, count, apart);
            within_bounds<bfloat16, bfloat16, bfloat16>(device, count, apart);
        }
    }
}

TEST_CASE("sum on a GPU: elements before the beginning and beyond the end do not count") {
    emulator::device device;
    for (const extent apart : {0, 1, 2, 3}) {
        for (const extent count : {1, 3, 4, 5, 67, 256, 257, 1030, 16387}) ends_where_it_should(device, count, apart);
    }
}

TEST_CASE("sum on a GPU: empty tensors, NaNs, wrong arguments") {
    emulator::device device;
    nothing_nan_and_wrong_arguments(device);
}

TEST_CASE("sum on a GPU: right in every schedule, and every damage is found") {
    constexpr extent count = 3 * ht::kernel::sum_piece + 101;
    support::random data(5);
    const guarded<bfloat16> x(data.integers<bfloat16>(count, 100), 0);
    const guarded<float> out(1);
    const auto e = ht::trace<1>([](auto v) { return v; });
    double want = 0;
    ht::reference::sum(e, ht::make_pack(x.const_view()), 0.5, ht::view<double, 0>(&want, {}));
    REQUIRE(want != 0);
    emulator::check_kernels([&](emulator::device& device) {
        sum::run(device, e, ht::make_pack(x.const_view()), 0.5, scalar(out));
        return static_cast<double>(out[0]) == want;
    });
}

}  // namespace emulator_kernel_sum_tests
