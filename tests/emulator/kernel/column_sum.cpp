// SPDX-License-Identifier: MIT
/// \file
/// Column sums' GPU kernels on the emulated GPU.
#include <vector>

#include <doctest/doctest.h>

#include <halftone/kernel/column_sum/device.hpp>

#include "emulator/damage.hpp"
#include "kernel/column_sum/checks.hpp"

namespace emulator_kernel_column_sum_tests {

using namespace column_sum_checks;
namespace emulator = ht::emulator;
using column_sum = ht::kernel::column_sum<emulator::device>;

TEST_CASE_TEMPLATE("column_sum on a GPU: within its bound of the definition", M, all_float, mixed, narrow) {
    emulator::device device;
    for (const extent apart : {0, 1}) {
        CAPTURE(apart);
        for (const extent width : {1, 7, 8, 33, 136, 264}) {
            for (const extent rows : {1, 9, 37}) within_bounds<M>(device, rows, width, 0, write_mode::overwrite, apart);
        }
        within_bounds<M>(device, 37, 67, 5, write_mode::add, apart);
        within_bounds<M>(device, 37, 64, 8, write_mode::add, apart);  // rows with a stride, all aligned
        within_bounds<M>(device, 37, 64, 1, write_mode::add, apart);  // rows with a stride, whose alignments differ
        within_bounds<M>(device, 5000, 2, 0, write_mode::add,
                         apart);  // the largest number of pieces, with more rows than the minimum
    }
}

TEST_CASE("column_sum on a GPU: no rows") {
    emulator::device device;
    no_rows(device);
}

bool sums_are_right(emulator::device& device, extent rows, extent width, extent apart, write_mode mode) {
    support::random data(7);
    const guarded<bfloat16> x(data.integers<bfloat16>(rows * width, 100), apart);
    const guarded<float> out(std::vector<float>(static_cast<std::size_t>(width), 3.0f));
    column_sum::run(device, x.const_view(ht::shape<2>{rows, width}), out.view(), mode);
    doubles want(static_cast<std::size_t>(width));
    ht::reference::column_sum(x.const_view(ht::shape<2>{rows, width}), ht::view<double, 1>(want.data(), {width}));
    bool right = true;
    for (extent j = 0; j < width; ++j)
        right = right &&
                static_cast<double>(out[j]) == want[static_cast<std::size_t>(j)] + (mode == write_mode::add ? 3 : 0);
    return right;
}

TEST_CASE("column_sum on a GPU: right in every schedule, and every damage is found") {
    for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
        emulator::check_kernels([&](emulator::device& device) { return sums_are_right(device, 37, 264, 0, mode); });
        emulator::check_kernels([&](emulator::device& device) { return sums_are_right(device, 20, 35, 1, mode); });
    }
}

}  // namespace emulator_kernel_column_sum_tests
