// SPDX-License-Identifier: MIT
/// \file
/// Pooling, batch norm and group norm on a GPU: the checks of tests/kernel.
// compile: joined, at most 66 kernels.
#include <doctest/doctest.h>

#include <halftone/kernel/channel_norm/device.hpp>
#include <halftone/kernel/pooling/device.hpp>

#include "cuda/device.cuh"
#include "kernel/channel_norm/checks.hpp"
#include "kernel/pooling/checks.hpp"

namespace {

using device_type = support::waiting_cuda;

TEST_CASE("max_pool2d, avg_pool2d, adaptive_avg_pool2d on cuda: as defined") {
    using namespace pooling_checks;
    device_type device;
    largest<bfloat16, bfloat16>(device, write_mode::add);
    means<bfloat16, bfloat16>(device, write_mode::overwrite);
    what_is_special(device);
    CHECK(overlapping(device) == overlapping(device));
}

TEST_CASE("batch_norm, group_norm on cuda: within their bounds of the definition") {
    using namespace channel_norm_checks;
    device_type device;
    within_bounds<bfloat16, float, bfloat16>(device);
    CHECK(many(device) == many(device));
}

}  // namespace
