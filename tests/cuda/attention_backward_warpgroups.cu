// SPDX-License-Identifier: MIT
/// \file
/// Attention's backward pass by Hopper's warpgroup instructions: the tests of tests/kernel, in code for sm_90a, and on a
/// GPU problems that are larger than an emulated machine takes.
// compile: read, sm_90a alone, at most 20 kernels.
#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/attention/backward_warpgroup_checks.hpp"

/// Of tests/ptx, which takes the place of the runtime where there is no GPU.
extern "C" int halftone_ptx_calls(const char* name) __attribute__((weak));

namespace {

using namespace support;
constexpr auto causal = ht::attention_mask::causal;
constexpr auto full = ht::attention_mask::full;

bool are_there(waiting_cuda& device) {
    if (device.has_wgmma_code()) return true;
    MESSAGE("not compiled for sm_90a, or the GPU is none: no attention by warpgroups here");
    return false;
}

TEST_CASE("attention backward on cuda by warpgroups is within bounds") {
    waiting_cuda device;
    if (are_there(device)) check_all_gradients_by_warpgroups(device);
}

TEST_CASE("attention backward on cuda by warpgroups: many tiles, many heads") {
    waiting_cuda device;
    if (!are_there(device) || halftone_ptx_calls != nullptr) return;
    check_gradients_by_warpgroups<bfloat16>(device, {2, 700, 700, 3, 3, 64, causal}, layout::fused_chunks);
    // Of so many keys fewer than 0.4 of the gradients exceed their bounds.
    check_gradients_by_warpgroups<bfloat16>(device, {1, 600, 1000, 4, 2, 128, causal}, layout::heads_first_chunks,
                                            bounds::may_hide);
    check_gradients_by_warpgroups<bfloat16>(device, {3, 333, 777, 6, 1, 64, full}, layout::heads_first_chunks,
                                            bounds::may_hide);
    check_gradients_by_warpgroups<float16>(device, {1, 640, 640, 9, 3, 128, full}, layout::heads_first_chunks);
    for (const double deviation : {300.0, 10000.0})
        check_gradients_by_warpgroups<bfloat16>(device, {1, 300, 300, 1, 1, 64, causal}, layout::fused_chunks,
                                                bounds::may_hide, deviation);
}

// NaNs at the first query, which sees one key alone.
TEST_CASE("attention backward on cuda by warpgroups: a masked query's NaNs reach no gradient") {
    waiting_cuda device;
    if (!are_there(device)) return;
    for (const extent head_size : {64, 128}) {
        problem<bfloat16> p({1, 100, 100, 1, 1, head_size, causal}, layout::fused_chunks);
        const outcome<bfloat16> clean = gradients_by_warpgroups_of(p, device);
        for (extent d = 0; d < head_size; ++d)
            p.x.q.view(0, 0, 0, d) = p.d_o.view(0, 0, 0, d) = bfloat16::from_bits(d % 2 == 0 ? 0x7fc0 : 0x7f80);
        const outcome<bfloat16> got = gradients_by_warpgroups_of(p, device);
        bool same = true, is_seen = false;
        for (extent j = 0; j < 100; ++j) {
            for (extent d = 0; d < head_size; ++d) {
                const auto equal = [&](const auto& a, const auto& b) {
                    return a.view(0, j, 0, d).bits() == b.view(0, j, 0, d).bits();
                };
                const bool all = equal(got.d.q, clean.d.q) && equal(got.d.k, clean.d.k) && equal(got.d.v, clean.d.v);
                same = same && (j == 0 || all);
                is_seen = is_seen || (j == 0 && !all);
            }
        }
        CHECK(same);
        CHECK(is_seen);
    }
}

}  // namespace
