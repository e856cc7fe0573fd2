// SPDX-License-Identifier: MIT
/// \file
/// What a key-value cache takes in, as it is and in eight bits, on a GPU.
// compile: joined, at most 30 kernels.
#include <doctest/doctest.h>

#include <halftone/kernel/cache_heads/device.hpp>
#include <halftone/kernel/cache_heads/eight_bit/device.hpp>

#include "cuda/device.cuh"
#include "kernel/cache_heads/checks.hpp"
#include "kernel/cache_heads/eight_bit_checks.hpp"

namespace {

TEST_CASE("cache_heads on cuda: as defined; positions outside the cache are ignored") {
    support::waiting_cuda device;
    cache_heads_checks::as_defined(device);
    CHECK(cache_heads_checks::stays_inside(device, {-1, 1, 2}));
}

TEST_CASE("eight_bit_heads on cuda: as defined and within bounds; slots that the cache does not have are left out") {
    support::waiting_cuda device;
    eight_bit_checks::as_defined(device);
    eight_bit_checks::within_bounds(device);
    eight_bit_checks::passes_on_infinities(device);
    CHECK(eight_bit_checks::stays_inside(device, {-1, 1, 2}));
}

}  // namespace
