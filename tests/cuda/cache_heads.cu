// SPDX-License-Identifier: MIT
/// \file
/// What a key-value cache takes in, on a GPU.
#include <doctest/doctest.h>

#include <halftone/kernel/cache_heads/device.hpp>

#include "cuda/device.cuh"
#include "kernel/cache_heads/checks.hpp"

namespace {

TEST_CASE("cache_heads on cuda: as defined; positions outside the cache are ignored") {
    support::waiting_cuda device;
    cache_heads_checks::as_defined(device);
    CHECK(cache_heads_checks::stays_inside(device, {-1, 1, 2}));
}

}  // namespace
