// SPDX-License-Identifier: MIT
/// \file
/// Gathering along an axis, cross-entropy with options, topk and multinomial on a GPU: the tests of tests/kernel and
/// tests/autodiff.
// compile: read, at most 100 kernels.
#include <doctest/doctest.h>

#include <halftone/exec/cuda/sort.cuh>

#include "autodiff/sampling_checks.hpp"
#include "cuda/device.cuh"
#include "kernel/gather/checks.hpp"
#include "kernel/weighted_cross_entropy/checks.hpp"

namespace {

using device_type = support::waiting_cuda;

namespace gather {
using namespace gather_checks;

TEST_CASE("gather, index_select, scatter_add, index_add on cuda: as defined") {
    device_type device;
    chosen_exactly<bfloat16, bfloat16>(device);
    chosen_exactly<float, float16>(device);
    for (const write_mode mode : {write_mode::overwrite, write_mode::add}) {
        summed_within_bounds<bfloat16, bfloat16>(device, mode, false);
        summed_within_bounds<float, float>(device, mode, true);
    }
    refuses(device);
    CHECK(long_sums(device) == long_sums(device));
}
}  // namespace gather

namespace losses {
using namespace weighted_cross_entropy_checks;

TEST_CASE("weighted cross_entropy on cuda: within its bound of the definition") {
    device_type device;
    for (const options& o : cases) {
        for (const extent classes : {1, 5, 33, 1100}) within_bounds<all_float>(device, 4, classes, 0, 2.0, o, classes % 2);
        within_bounds<mixed>(device, 3, 64, 0, 2.0, o, 0);
        within_bounds<mixed>(device, 3, 1030, 2, 1.0, o);
    }
    in_double(device);
}
}  // namespace losses

namespace sampling {
using namespace sampling_checks;

TEST_CASE("topk and multinomial on cuda: the order of a stable sort, the CPU's draws") {
    device_type device;
    for (const extent width : {1, 7, 33, 300}) {
        is_sorted<float>(device, 3, width, 0, width < 5 ? 1 : 5);
        is_sorted<ht::bfloat16>(device, 2, width, 3, 1);
        is_sorted<double>(device, 2, width, 1, 1);
    }
    draws(device, 400);
}
}  // namespace sampling

}  // namespace
