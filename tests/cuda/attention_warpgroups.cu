// SPDX-License-Identifier: MIT
/// \file
/// Attention's forward pass by Hopper's warpgroup instructions: the tests of tests/kernel, in code for sm_90a.
// compile: read, sm_90a alone, at most 20 kernels.
#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/attention/warpgroup_checks.hpp"

namespace {

using namespace support;

bool are_there(waiting_cuda& device) {
    if (device.has_wgmma_code()) return true;
    MESSAGE("not compiled for sm_90a, or the GPU is none: no attention by warpgroups here");
    return false;
}

TEST_CASE("attention on cuda by warpgroups is within bounds") {
    waiting_cuda device;
    if (!are_there(device)) return;
    for_each_warpgroup_problem([&](const auto&... one) { check_warpgroups<bfloat16>(device, one...); });
    check_warpgroups<float16>(device, {2, 65, 300, 4, 2, 40, ht::attention_mask::causal}, layout::heads_first_chunks,
                              bounds::telling);
    check_warpgroups<float16>(device, {1, 130, 130, 1, 1, 128, ht::attention_mask::causal}, layout::fused_chunks,
                              bounds::telling);
}

TEST_CASE("attention on cuda by warpgroups: many tiles, twice the same bits") {
    waiting_cuda device;
    if (!are_there(device)) return;
    for (const extent head_size : {64, 128}) {
        const problem<bfloat16> p({1, 700, 700, 4, 2, head_size, ht::attention_mask::causal},
                                  layout::heads_first_chunks);
        const outcome<bfloat16> got = forward_by_warpgroups(p, device);
        check_forward(p, got, bounds::telling);
        CHECK(same_forward(got, forward_by_warpgroups(p, device)));
        if (head_size != 64) continue;
        using three = ht::kernel::on_device::warpgroup_attention_tiling<64, 3, 4, true>;
        CHECK(same_forward(got, forward_by_tiling<bfloat16, three>(p, device)));
    }
}

TEST_CASE("attention on cuda by warpgroups: hidden values have no effect, NaNs of visible ones propagate") {
    waiting_cuda device;
    if (!are_there(device)) return;
    const auto run = [&](const auto& p) { return forward_by_warpgroups(p, device); };
    check_hidden_forward<bfloat16>({1, 140, 150, 2, 1, 64, ht::attention_mask::causal}, {20, 149}, run);
    check_hidden_forward<bfloat16>({1, 70, 90, 2, 1, 128, ht::attention_mask::causal}, {33, 88}, run);
    check_hidden_forward<float16>({1, 70, 90, 2, 1, 64, ht::attention_mask::causal}, {33}, run);
}

}  // namespace
