// SPDX-License-Identifier: MIT
/// \file
/// Attention on a GPU: the tests of tests/kernel, in every layout and for every head size that has its own kernel.
// compile: read alone, at most 100 kernels. attention_mods.cu, which is joined, has kernels like these.
#include <doctest/doctest.h>

#include "cuda/device.cuh"
#include "kernel/attention/checks.hpp"

// Kernels for floats in tfloat32, of two sizes; tests/cuda/attention_tf32.cu runs them all.
namespace halftone {
inline namespace HALFTONE_ABI {
namespace detail {

template <int Head>
using tf32_tiles = kernel::on_device::attention_tiles<float, Head>;
template __global__ void kernel_entry(const __grid_constant__ tf32_tiles<64>::forward kernel);
template __global__ void kernel_entry(const __grid_constant__ tf32_tiles<64>::by_queries kernel);
template __global__ void kernel_entry(const __grid_constant__ tf32_tiles<64>::by_keys kernel);
template __global__ void kernel_entry(const __grid_constant__ tf32_tiles<128>::forward kernel);
template __global__ void kernel_entry(const __grid_constant__ tf32_tiles<128>::by_queries kernel);
template __global__ void kernel_entry(const __grid_constant__ tf32_tiles<128>::by_keys kernel);

}  // namespace detail
}  // namespace HALFTONE_ABI
}  // namespace halftone

namespace {

using namespace support;
constexpr auto causal = ht::attention_mask::causal;
constexpr auto full = ht::attention_mask::full;

/// Within its bounds, and the same bits a second time.
template <class Compute, class T>
void check(const attention_sizes& sizes, layout way, bounds kind = bounds::telling, double deviation = 1) {
    check_problem<Compute, T>(sizes, way, kind, deviation,
                              [](const problem<T>& p, const auto& compare_with_definition) {
                                  waiting_cuda device;
                                  const outcome<T> got = outcome_of<Compute>(p, device);
                                  compare_with_definition(got);
                                  CHECK(got.same_bits(outcome_of<Compute>(p, device)));
                              });
}

template <class Compute, class T>
void check_all() {
    check<Compute, T>({2, 2, 2, 2, 2, 16, causal}, layout::contiguous, bounds::may_hide);
    check<Compute, T>({1, 63, 63, 3, 3, 24, causal}, layout::fused);
    check<Compute, T>({1, 64, 64, 2, 2, 64, causal}, layout::fused);
    check<Compute, T>({2, 65, 65, 1, 1, 16, full}, layout::heads_first);
    check<Compute, T>({1, 130, 130, 1, 1, 64, causal}, layout::fused);
    check<Compute, T>({1, 130, 130, 1, 1, 64, causal}, layout::fused_chunks);
    check<Compute, T>({1, 130, 130, 1, 1, 128, full}, layout::contiguous);
    check<Compute, T>({1, 70, 600, 1, 1, 16, causal}, layout::contiguous);
    check<Compute, T>({1, 7, 301, 2, 2, 24, full}, layout::heads_first);
    check<Compute, T>({1, 512, 512, 2, 1, 64, causal}, layout::contiguous);
}

TEST_CASE("attention on cuda: it and its gradients are within bounds") {
    SUBCASE("float") { check_all<float, float>(); }
    SUBCASE("bfloat16") { check_all<bfloat16, bfloat16>(); }
    SUBCASE("float16") { check_all<float16, float16>(); }
}

TEST_CASE("attention on cuda: any head size up to 256") {
    for (const extent head_size : {1, 2, 3, 15, 17, 33, 64, 80, 96, 100, 128, 160, 256}) {
        check<float, float>({1, 19, 37, 1, 1, head_size, causal}, layout::heads_first, bounds::may_hide);
        check<bfloat16, bfloat16>({1, 37, 37, 1, 1, head_size, full}, layout::fused, bounds::may_hide);
        check<bfloat16, bfloat16>({1, 150, 150, 1, 1, head_size, causal}, layout::contiguous, bounds::may_hide);
    }
}

TEST_CASE("attention on cuda: wide heads on matrix units") {
    for (const extent head_size : {136, 192, 256}) {
        check<bfloat16, bfloat16>({1, 150, 200, 2, 1, head_size, causal}, layout::heads_first_chunks);
        check<float16, float16>({2, 70, 70, 1, 1, head_size, full}, layout::fused_chunks, bounds::may_hide);
    }
}

template <class T>
void check_packs(const sequence_lengths& lengths, const attention_sizes& heads, layout way, bounds kind) {
    check_packed<T, T>(lengths, heads, way, kind, [](const packed_problem<T>& p, const auto& compare_with_definition) {
        waiting_cuda device(ht::cuda_options{.batch_invariant = true});  // alone they are else computed by Hopper's warpgroups
        const outcome<T> got = p.template outcome_on<T>(device);
        compare_with_definition(got);
        CHECK(got.same_bits(one_by_one<T>(p, device)));
    });
}

TEST_CASE("attention on cuda: packed sequences have the bits that each has alone") {
    for_each_pack([](const auto&... pack) {
        check_packs<float>(pack...);
        check_packs<bfloat16>(pack...);
    });
    const sequence_lengths long_and_short{{300, 7, 0, 129}, {300, 70, 5, 200}};
    for (const extent head_size : {64, 128, 256})
        check_packs<bfloat16>(long_and_short, {1, 0, 0, 2, 1, head_size, causal}, layout::heads_first_chunks,
                              bounds::may_hide);
}

TEST_CASE("attention on cuda: query heads share key heads; huge scores") {
    check<float, float>({1, 66, 66, 6, 2, 16, causal}, layout::contiguous);
    check<bfloat16, bfloat16>({1, 130, 130, 4, 2, 32, causal}, layout::contiguous);
    check<bfloat16, bfloat16>({2, 200, 200, 8, 2, 64, full}, layout::contiguous);
    for (const double deviation : {300.0, 10000.0}) {
        check<bfloat16, bfloat16>({1, 70, 70, 1, 1, 64, causal}, layout::contiguous, bounds::may_hide, deviation);
        check<float16, float16>({1, 70, 70, 1, 1, 16, causal}, layout::contiguous, bounds::may_hide, deviation);
    }
}

}  // namespace
