// SPDX-License-Identifier: MIT
/// \file
/// Copies between strided views and maps of strided views on a GPU: the tests of tests/kernel, and sizes that fill the machine.
// compile: joined, at most 60 kernels.
#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/map/checks.hpp"
#include "kernel/strided_copy/checks.hpp"

namespace {

using device_type = support::waiting_cuda;

TEST_CASE("strided_copy on cuda: the bytes of its definition") {
    device_type device;
    strided_copy_checks::every_size(device);
    CHECK(strided_copy_checks::is_right<halftone::bfloat16>(device, halftone::shape<3>{3, 700, 260}, 0,
                                                            [](const auto& v) { return halftone::transpose(v); }));
}

TEST_CASE("map on cuda: operands of any strides") {
    device_type device;
    map_checks::strided<float>(device);
    map_checks::strided<halftone::bfloat16>(device);
    map_checks::strided<double>(device);
}

}  // namespace
