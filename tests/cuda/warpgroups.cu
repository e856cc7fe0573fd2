// SPDX-License-Identifier: MIT
/// \file
/// Products by Hopper's warpgroup instructions, for any shape: the tests of tests/kernel, in code for sm_90a.
// compile: read, sm_90a alone, at most 70 kernels.
#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/matmul/warpgroup_checks.hpp"

namespace {

bool are_there(support::waiting_cuda& device) {
    if (device.has_wgmma_code()) return true;
    MESSAGE("not compiled for sm_90a, or the GPU is none: no products by warpgroups here");
    return false;
}

TEST_CASE("matmul on cuda by warpgroups: every pair of layouts, edges, parts") {
    support::waiting_cuda device;
    if (are_there(device)) matmul_test::warpgroups_in_all_layouts(device);
}
TEST_CASE("matmul on cuda by warpgroups: rows of c that begin anywhere") {
    support::waiting_cuda device;
    if (are_there(device)) matmul_test::warpgroups_store_any_rows(device);
}
TEST_CASE("matmul on cuda by warpgroups: epilogues") {
    support::waiting_cuda device;
    if (are_there(device)) matmul_test::warpgroups_finish_all(device);
}

}  // namespace
