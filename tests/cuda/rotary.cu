// SPDX-License-Identifier: MIT
/// \file
/// Rotary embedding on a GPU.
// compile: joined, at most 30 kernels.
#include <doctest/doctest.h>

#include <halftone/kernel/rotary/device.hpp>

#include "cuda/device.cuh"
#include "kernel/rotary/checks.hpp"

namespace {

using namespace rotary_checks;

TEST_CASE_TEMPLATE("rotary on cuda: as its definition, in both layouts, of strided heads and parts of them", T, float,
                   bfloat16, double) {
    support::waiting_cuda device;
    for (const extent head_size : {2, 6, 64, 128}) {
        for_each_problem<T>(device, head_size, [](auto& d, const problem& p) { CHECK(is_right<T>(d, p)); });
    }
}

TEST_CASE("rotary on cuda: a rotation and its inverse, and wrong arguments") {
    support::waiting_cuda device;
    turns_and_back(device);
    refuses(device);
}

}  // namespace
